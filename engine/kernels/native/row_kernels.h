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

// Steps up to the largest magnitude of a block. Both are tried, which leaves a tenth less of error than one (ADR 26).
constexpr float kMostSteps[2] = {127.0f, 125.0f};

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

// A block in whole steps: y = x / step, n = y rounded; of n times the best step, dot / norm of a step is left over.
struct Rounding {
  Lanes first, second;  // n, whole numbers
  float dot, norm;      // y . n and n . n
};

// The sums of a's to d's sixteen lanes: each the halves added, then the quarters, eighths and so on.
inline void four_sums(Lanes a, Lanes b, Lanes c, Lanes d, float (&sums)[4]) {
#if defined(__AVX512F__)
  const __m512 u = a.part[0], v = b.part[0], w = c.part[0], z = d.part[0];
  const __m512 uv = _mm512_add_ps(_mm512_shuffle_f32x4(u, v, 0x44), _mm512_shuffle_f32x4(u, v, 0xee));
  const __m512 wz = _mm512_add_ps(_mm512_shuffle_f32x4(w, z, 0x44), _mm512_shuffle_f32x4(w, z, 0xee));
  __m512 all = _mm512_add_ps(_mm512_shuffle_f32x4(uv, wz, 0x88), _mm512_shuffle_f32x4(uv, wz, 0xdd));
  all = _mm512_add_ps(all, _mm512_permute_ps(all, 0x4e));
  all = _mm512_add_ps(all, _mm512_permute_ps(all, 0xb1));
  alignas(64) float lanes[kPanel];
  _mm512_store_ps(lanes, all);
  for (int i = 0; i < 4; ++i) sums[i] = lanes[4 * i];
#else
  const Lanes all[4] = {a, b, c, d};
  for (int i = 0; i < 4; ++i) {
    float lanes[kPanel];
    store(lanes, all[i]);
    for (int half = kPanel / 2; half > 0; half /= 2) {
      for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    }
    sums[i] = lanes[0];
  }
#endif
}

// Both roundings of a block, which is finite and not zero, to kMostSteps of its largest magnitude.
inline void round_both(const float* in, float largest, Rounding (&out)[2]) {
  const Lanes first = load(in), second = load(in + kPanel), magic = broadcast(kRoundingMagic);
  Lanes dots[2], norms[2];
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const Lanes factor = broadcast(kMostSteps[i] / largest);
    const Lanes y = multiply(first, factor), z = multiply(second, factor);
    const Lanes n = subtract(add(y, magic), magic), m = subtract(add(z, magic), magic);
    dots[i] = add(multiply(y, n), multiply(z, m));
    norms[i] = add(multiply(n, n), multiply(m, m));
    out[i].first = n;
    out[i].second = m;
  }
  float sums[4];
  four_sums(dots[0], dots[1], norms[0], norms[1], sums);
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) out[i].dot = sums[i], out[i].norm = sums[2 + i];
}

// Writes whole numbers of -127..127; returns their sum.
inline int32_t store_bytes(Lanes whole, int8_t* out) {
#if defined(__AVX512F__)
  const __m512i integers = _mm512_cvtps_epi32(whole.part[0]);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_cvtepi32_epi8(integers));
  return _mm512_reduce_add_epi32(integers);
#else
  float lanes[kPanel];
  store(lanes, whole);
  int32_t sum = 0;
  for (int i = 0; i < kPanel; ++i) {
    out[i] = int8_t(lanes[i]);
    sum += int32_t(lanes[i]);
  }
  return sum;
#endif
}

struct RoundedBlock {
  float scale;
  int32_t first_sum, second_sum;  // of the integers of its halves
};

// Of the two roundings the one that leaves less over, and its step.
inline RoundedBlock round_block(const float* in, int8_t* values) {
  const float largest = largest_magnitude(in);
  // The reciprocal of a tiny maximum would overflow; such a block is zero to every practical purpose.
  if (!(largest > 1e-30f)) {
    std::memset(values, 0, kBlock);
    return {largest, 0, 0};  // NaN stays
  }
  Rounding both[2];
  round_both(in, largest, both);
  // The part of |x / largest|^2 that each explains.
  const float explained = both[0].dot * both[0].dot / (both[0].norm * (kMostSteps[0] * kMostSteps[0]));
  const float explained_by_second = both[1].dot * both[1].dot / (both[1].norm * (kMostSteps[1] * kMostSteps[1]));
  const int better = explained_by_second > explained;
  const Rounding& best = both[better];
  return {best.dot / best.norm * (largest / kMostSteps[better]), store_bytes(best.first, values),
          store_bytes(best.second, values + kPanel)};
}

void quantize_row(const float* x, int num_inputs, const QuantizedRows& out, int row) {
  const int64_t first_block = int64_t(row / kRowGroup) * (num_inputs / kBlock);
  const int place = row % kRowGroup;
  for (int b = 0; b < num_inputs / kBlock; ++b) {
    const int64_t at = (first_block + b) * kRowGroup + place;
    const RoundedBlock block = round_block(x + b * kBlock, out.values + at * kBlock);
    const int32_t sum = block.first_sum + block.second_sum;
    out.scales[at] = block.scale;
    out.sums[at] = block.scale * float(sum);
    out.corrections[at] = -128 * sum;
    out.half_corrections[(first_block + b) * 2 * kRowGroup + place] = -32 * block.first_sum;
    out.half_corrections[(first_block + b) * 2 * kRowGroup + kRowGroup + place] = -32 * block.second_sum;
  }
}

}  // namespace
}  // namespace pellucid
