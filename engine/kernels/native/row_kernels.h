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

// The largest magnitude of a block of 32; NaN when an input is NaN or infinite, so that it reaches the logits and is
// reported.
inline float largest_magnitude(const float* in) {
#if defined(__AVX512F__)
  const __m512 first = _mm512_abs_ps(_mm512_loadu_ps(in)), second = _mm512_abs_ps(_mm512_loadu_ps(in + kPanel));
  const __m512 limit = _mm512_set1_ps(3.4e38f);
  if (_mm512_cmp_ps_mask(first, limit, _CMP_NLE_UQ) | _mm512_cmp_ps_mask(second, limit, _CMP_NLE_UQ)) {
    return __builtin_nanf("");
  }
  return _mm512_reduce_max_ps(_mm512_max_ps(first, second));
#else
  float largest_of[kPanel];
  bool is_finite = true;
  for (int i = 0; i < kPanel; ++i) {
    const float first = __builtin_fabsf(in[i]), second = __builtin_fabsf(in[i + kPanel]);
    largest_of[i] = first > second ? first : second;
    is_finite &= (first <= 3.4e38f) & (second <= 3.4e38f);
  }
  if (!is_finite) return __builtin_nanf("");
  float largest = 0.0f;
  for (int i = 0; i < kPanel; ++i) largest = largest_of[i] > largest ? largest_of[i] : largest;
  return largest;
#endif
}

struct HalfSums {
  int32_t first, second;
};

// Rounds the block to 8 bits; returns the sums of its halves.
inline HalfSums round_block(const float* in, float inverse, int8_t* out) {
#if defined(__AVX512F__)
  const __m512 factor = _mm512_set1_ps(inverse);
  const __m512i first = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(in), factor));
  const __m512i second = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(in + kPanel), factor));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_cvtepi32_epi8(first));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out + kPanel), _mm512_cvtepi32_epi8(second));
  return {_mm512_reduce_add_epi32(first), _mm512_reduce_add_epi32(second)};
#else
  int32_t rounded[kBlock];
  HalfSums sums{0, 0};
  for (int i = 0; i < kBlock; ++i) rounded[i] = round_to_int(in[i] * inverse);
  for (int i = 0; i < kBlock; ++i) out[i] = int8_t(rounded[i]);
  for (int i = 0; i < kPanel; ++i) sums.first += rounded[i];
  for (int i = kPanel; i < kBlock; ++i) sums.second += rounded[i];
  return sums;
#endif
}

void quantize_row(const float* x, int num_inputs, const QuantizedRows& out, int row) {
  const int64_t first_block = int64_t(row / kRowGroup) * (num_inputs / kBlock);
  const int place = row % kRowGroup;
  for (int b = 0; b < num_inputs / kBlock; ++b) {
    const int64_t at = (first_block + b) * kRowGroup + place;
    const float largest = largest_magnitude(x + b * kBlock);
    // The reciprocal of a tiny maximum would overflow; such a block is zero to every practical purpose.
    const float inverse = largest > 1e-30f ? 127.0f / largest : 0.0f;
    int8_t* values = out.values + at * kBlock;
    HalfSums sums{0, 0};
    if (largest == largest) {
      sums = round_block(x + b * kBlock, inverse, values);
    } else {
      std::memset(values, 0, kBlock);
    }
    out.scales[at] = largest / 127.0f;
    out.sums[at] = largest / 127.0f * float(sums.first + sums.second);
    out.corrections[at] = -128 * (sums.first + sums.second);
    out.half_corrections[(first_block + b) * 2 * kRowGroup + place] = -32 * sums.first;
    out.half_corrections[(first_block + b) * 2 * kRowGroup + kRowGroup + place] = -32 * sums.second;
  }
}

}  // namespace
}  // namespace pellucid
