// What is done to one row of activations: norm, gate, quantisation.
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

void swiglu(const float* __restrict gate, const float* __restrict up, int size, float* __restrict out) {
  for (int i = 0; i < size; ++i) out[i] = gate[i] / (1.0f + exp_approx(-gate[i])) * up[i];
}

void quantize_row(const float* __restrict x, int num_inputs, int8_t* __restrict values, float* __restrict scales,
                  float* __restrict sums) {
  for (int b = 0; b < num_inputs / kBlock; ++b) {
    const float* in = x + b * kBlock;
    int8_t* out = values + b * kBlock;
    // Sixteen maxima side by side, then theirs: a maximum doesn't depend on the order.
    float largest_of[kPanel];
    float poison_of[kPanel];  // NaN where an input is NaN or infinite, so that it reaches the logits and is reported
    for (int i = 0; i < kPanel; ++i) {
      const float first = __builtin_fabsf(in[i]), second = __builtin_fabsf(in[i + kPanel]);
      largest_of[i] = first > second ? first : second;
      poison_of[i] = first * 0.0f + second * 0.0f;
    }
    for (int width = kPanel / 2; width > 0; width /= 2) {
      for (int i = 0; i < width; ++i) {
        largest_of[i] = largest_of[i] > largest_of[i + width] ? largest_of[i] : largest_of[i + width];
        poison_of[i] += poison_of[i + width];
      }
    }
    if (poison_of[0] != 0.0f) {
      std::memset(out, 0, kBlock);
      scales[b] = sums[b] = poison_of[0];
      continue;
    }
    const float largest = largest_of[0];
    // A reciprocal of a subnormal maximum would overflow; such a block is zero to every practical purpose.
    const float inverse = largest > 1e-30f ? 127.0f / largest : 0.0f;
    int sum = 0;
    for (int i = 0; i < kBlock; ++i) {
      const int32_t q = round_to_int(in[i] * inverse);
      out[i] = int8_t(q);
      sum += q;
    }
    scales[b] = largest / 127.0f;
    sums[b] = scales[b] * float(sum);
  }
}

}  // namespace
}  // namespace pellucid
