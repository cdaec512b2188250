// Softmax of one row: the largest value is taken off first, so that nothing overflows.
#pragma once
#include "lanes.h"

namespace pellucid {
namespace {

// Sixteen partial maxima and sums, then theirs in order; a NaN makes the whole row NaN.
void softmax(const float* x, int size, float* out) {
  float largest_of[kPanel];
  for (int lane = 0; lane < kPanel; ++lane) largest_of[lane] = x[0];
  int i = 0;
  for (; i + kPanel <= size; i += kPanel) {
    for (int lane = 0; lane < kPanel; ++lane) {
      largest_of[lane] = x[i + lane] > largest_of[lane] ? x[i + lane] : largest_of[lane];
    }
  }
  float largest = x[0];
  for (int lane = 0; lane < kPanel; ++lane) largest = largest_of[lane] > largest ? largest_of[lane] : largest;
  for (; i < size; ++i) largest = x[i] > largest ? x[i] : largest;
  float partial[kPanel] = {};
  for (i = 0; i + kPanel <= size; i += kPanel) {
    for (int lane = 0; lane < kPanel; ++lane) {
      out[i + lane] = exp_approx(x[i + lane] - largest);
      partial[lane] += out[i + lane];
    }
  }
  for (int lane = 0; i + lane < size; ++lane) {
    out[i + lane] = exp_approx(x[i + lane] - largest);
    partial[lane] += out[i + lane];
  }
  float sum = 0.0f;
  for (int lane = 0; lane < kPanel; ++lane) sum += partial[lane];
  const float inverse = 1.0f / sum;
  for (i = 0; i < size; ++i) out[i] *= inverse;
}

}  // namespace
}  // namespace pellucid
