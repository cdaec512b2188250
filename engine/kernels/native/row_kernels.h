// What is done to one row of activations: norm and gate.
#pragma once

#include "exponential.h"

namespace pellucid {
namespace {

inline float sum_in_order(Lanes partial) {
  float lanes[kPanel];
  store(lanes, partial);
  float sum = 0.0f;
  for (int lane = 0; lane < kPanel; ++lane) sum += lanes[lane];
  return sum;
}

inline void scale_row(const float* x, float sum_of_squares, const float* weight, int size, float epsilon, float* out) {
  const float factor = 1.0f / __builtin_sqrtf(sum_of_squares / float(size) + epsilon);
  for (int j = 0; j < size; ++j) out[j] = x[j] * factor * weight[j];
}

void rms_norm(const float* x, const float* weight, int size, float epsilon, float* out) {
  Lanes partial = zeros();
  int i = 0;
  for (; i + kPanel <= size; i += kPanel) {
    const Lanes v = load(x + i);
    partial = multiply_add(v, v, partial);
  }
  float sum = sum_in_order(partial);
  for (; i < size; ++i) sum = multiply_add(x[i], x[i], sum);
  scale_row(x, sum, weight, size, epsilon, out);
}

// The same for x + delta, which is written to x. The row that comes `next` floats later is asked for: many of its lines
// lie in another core's cache, from where they wouldn't come in time by themselves.
void add_rms_norm(float* x, const float* delta, const float* weight, int size, float epsilon, float* out, int64_t next) {
  Lanes partial = zeros();
  int i = 0;
  for (; i + kPanel <= size; i += kPanel) {
    __builtin_prefetch(delta + i + next);
    __builtin_prefetch(x + i + next, 1);
    const Lanes v = add(load(x + i), load(delta + i));
    store(x + i, v);
    partial = multiply_add(v, v, partial);
  }
  float sum = sum_in_order(partial);
  for (; i < size; ++i) {
    x[i] += delta[i];
    sum = multiply_add(x[i], x[i], sum);
  }
  scale_row(x, sum, weight, size, epsilon, out);
}

// The row that comes `next` floats later, and whose output follows this one's, is asked for.
void swiglu(const float* __restrict gate, const float* __restrict up, int size, float* __restrict out, int64_t next) {
  const float* const next_out = next ? out + size : out;
  constexpr int kStep = kPanel / kParts;
  int i = 0;
  for (; i + kStep <= size; i += kStep) {
    Register g, u;
    __builtin_prefetch(gate + i + next);
    __builtin_prefetch(up + i + next);
    __builtin_prefetch(next_out + i, 1);
    std::memcpy(&g, gate + i, sizeof g);
    std::memcpy(&u, up + i, sizeof u);
    const Register activated = g / (1.0f + exp_of(-g)) * u;
    std::memcpy(out + i, &activated, sizeof activated);
  }
  for (; i < size; ++i) out[i] = gate[i] / (1.0f + exp_approx(-gate[i])) * up[i];
}

}  // namespace
}  // namespace pellucid
