// What is done to one row of activations: norm and gate.
#pragma once

#include "lanes.h"

namespace pellucid {
namespace {

inline float row_sum_of_squares(const float* x, int size) {
  // Sixteen partial sums, then their sum in order.
  Lanes partial = zeros();
  int i = 0;
  for (; i + kPanel <= size; i += kPanel) {
    const Lanes v = load(x + i);
    partial = multiply_add(v, v, partial);
  }
  float lanes[kPanel];
  store(lanes, partial);
  float sum = 0.0f;
  for (int lane = 0; lane < kPanel; ++lane) sum += lanes[lane];
  for (; i < size; ++i) sum = multiply_add(x[i], x[i], sum);
  return sum;
}

void rms_norm(const float* x, const float* weight, int size, float epsilon, float* out) {
  const float factor = 1.0f / __builtin_sqrtf(row_sum_of_squares(x, size) / float(size) + epsilon);
  for (int j = 0; j < size; ++j) out[j] = x[j] * factor * weight[j];
}

void swiglu(const float* gate, const float* __restrict up, int size, float* out) {
#pragma GCC ivdep
  for (int i = 0; i < size; ++i) out[i] = gate[i] / (1.0f + exp_approx(-gate[i])) * up[i];
}

}  // namespace
}  // namespace pellucid
