// The better of two roundings of up to sixteen blocks of activations, in AVX-512; see quantize_rows.h.
//
// Four blocks are reduced side by side, each step halving two registers into one, so that what belongs to sixteen blocks
// ends in the lanes of one register and the scalar steps are taken once for all of them. Nothing is read back from
// memory wider than it was written: such a load would wait for all stores before it, rounded rows on their way to another
// core's cache among them.
#pragma once
#include "lanes.h"

namespace pellucid {
namespace {

// Lane 4i + j of a register of sixteen blocks is block i + 4j.
inline __m512i lane_order() {
  return _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
}

inline __m512 first_halves(__m512 a, __m512 b) { return _mm512_shuffle_f32x4(a, b, 0x44); }
inline __m512 second_halves(__m512 a, __m512 b) { return _mm512_shuffle_f32x4(a, b, 0xee); }
inline __m512 even_quarters(__m512 a, __m512 b) { return _mm512_shuffle_f32x4(a, b, 0x88); }
inline __m512 odd_quarters(__m512 a, __m512 b) { return _mm512_shuffle_f32x4(a, b, 0xdd); }
// Of each quarter, pairs or single lanes.
inline __m512 first_pairs(__m512 a, __m512 b) { return _mm512_shuffle_ps(a, b, 0x44); }
inline __m512 second_pairs(__m512 a, __m512 b) { return _mm512_shuffle_ps(a, b, 0xee); }
inline __m512 even_lanes(__m512 a, __m512 b) { return _mm512_shuffle_ps(a, b, 0x88); }
inline __m512 odd_lanes(__m512 a, __m512 b) { return _mm512_shuffle_ps(a, b, 0xdd); }
inline __m512i even_lanes(__m512i a, __m512i b) {
  return _mm512_castps_si512(even_lanes(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b)));
}
inline __m512i odd_lanes(__m512i a, __m512i b) {
  return _mm512_castps_si512(odd_lanes(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b)));
}

// The larger magnitudes; of NaN and a number it's the number, and NaN is found by its products.
inline __m512 larger_magnitude(__m512 a, __m512 b) { return _mm512_range_ps(a, b, 0x0b); }

// The largest magnitudes of four blocks, one in each quarter's four lanes.
inline __m512 four_magnitudes(const float* const (&in)[4]) {
  __m512 m[4];
#pragma GCC unroll 4
  for (int b = 0; b < 4; ++b) m[b] = larger_magnitude(_mm512_loadu_ps(in[b]), _mm512_loadu_ps(in[b] + kPanel));
  const __m512 ab = larger_magnitude(first_halves(m[0], m[1]), second_halves(m[0], m[1]));
  const __m512 cd = larger_magnitude(first_halves(m[2], m[3]), second_halves(m[2], m[3]));
  return larger_magnitude(even_quarters(ab, cd), odd_quarters(ab, cd));
}

// What is summed over a block's two roundings.
struct FourProducts {
  __m512 dots;     // y.n, y being x in steps; in the quarter of each block two lanes of the first, two of the second
  __m512i counts;  // n.n + 2^19 sum(n), likewise; the two lanes are the halves of the block
};

constexpr int kSumShift = 19;  // n.n of a block is less than 2^19, and sum(n) fits in the 13 bits above

// Both roundings of a block: whole [first 32, second 32], y.n in lanes and n.n and sums by quarters and halves.
inline void both_roundings(const float* in, const float* factors, int8_t* whole, __m512 (&dots)[2], __m512i& counts) {
  // Adding it rounds to the nearest integer, ties to even, and leaves the integer + 0x8080 in the lowest 16 bits.
  constexpr float kBiasedMagic = kRoundingMagic + 0x8080;
  const __m512 biased = _mm512_set1_ps(kBiasedMagic), magic = _mm512_set1_ps(kRoundingMagic);
  const __m512 low = _mm512_loadu_ps(in), high = _mm512_loadu_ps(in + kPanel);
  __m512i pair[2];
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const __m512 factor = _mm512_set1_ps(factors[i * kPanel]);
    const __m512 y = _mm512_mul_ps(low, factor), z = _mm512_mul_ps(high, factor);
    const __m512 shifted = _mm512_add_ps(y, biased);
    const __m512 n = _mm512_sub_ps(shifted, biased), m = _mm512_sub_ps(_mm512_add_ps(z, magic), magic);
    dots[i] = _mm512_add_ps(_mm512_mul_ps(y, n), _mm512_mul_ps(z, m));
    // Exact; the lowest bytes are n + 128 and m + 128, those above always 0x4b40.
    pair[i] = _mm512_castps_si512(_mm512_fmadd_ps(m, _mm512_set1_ps(256.0f), shifted));
  }
  // Bytes n, m of the first rounding, n, m of the second; then by quarters, four bytes of each.
  __m512i bytes = _mm512_ternarylogic_epi32(pair[0], _mm512_slli_epi32(pair[1], 16),
                                            _mm512_set1_epi32(0x4b400000 ^ int32_t(0x80808080)), 0x96);
  bytes = _mm512_shuffle_epi8(
      bytes, _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)));
  const __m512i sums = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), bytes);
  const __m512i absolute = _mm512_abs_epi8(bytes);
  counts = _mm512_dpbusd_epi32(_mm512_slli_epi32(sums, kSumShift), absolute, absolute);
  _mm512_store_si512(whole, _mm512_permutexvar_epi32(lane_order(), bytes));
}

// `factors` are a block's two, kPanel apart, for each of four blocks a quarter (four places) apart.
inline FourProducts four_products(const float* const (&in)[4], const float* factors, int8_t (*whole)[2 * kBlock]) {
  __m512 dots[4][2];
  __m512i counts[4];
#pragma GCC unroll 4
  for (int b = 0; b < 4; ++b) both_roundings(in[b], factors + 4 * b, whole[b], dots[b], counts[b]);
  __m512 four[2];
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const __m512 a = dots[0][i], b = dots[1][i], c = dots[2][i], d = dots[3][i];
    const __m512 ab = _mm512_add_ps(first_halves(a, b), second_halves(a, b));
    const __m512 cd = _mm512_add_ps(first_halves(c, d), second_halves(c, d));
    four[i] = _mm512_add_ps(even_quarters(ab, cd), odd_quarters(ab, cd));
  }
  const __m512i ab = _mm512_add_epi32(_mm512_shuffle_i32x4(counts[0], counts[1], 0x44),
                                      _mm512_shuffle_i32x4(counts[0], counts[1], 0xee));
  const __m512i cd = _mm512_add_epi32(_mm512_shuffle_i32x4(counts[2], counts[3], 0x44),
                                      _mm512_shuffle_i32x4(counts[2], counts[3], 0xee));
  return {_mm512_add_ps(first_pairs(four[0], four[1]), second_pairs(four[0], four[1])),
          _mm512_add_epi32(_mm512_shuffle_i32x4(ab, cd, 0x88), _mm512_shuffle_i32x4(ab, cd, 0xdd))};
}

// Rounds `count` <= 16 blocks, whose inputs are `stride` floats apart, to either of two numbers of steps.
inline void round_blocks(const float* in, int64_t stride, int count, const float* most_steps, RoundedBlocks& out) {
  const int fours = (count + 3) / 4;
  // Blocks past the last are the last one again; so are fours of them, as far as they're looked at.
  auto inputs_of = [&](int four, const float* (&at)[4]) {
#pragma GCC unroll 4
    for (int b = 0; b < 4; ++b) {
      const int block = 4 * four + b;
      at[b] = in + (block < count ? block : count - 1) * stride;
    }
  };
  __m512 magnitude[4];
#pragma GCC unroll 4
  for (int four = 0; four < 4; ++four) {
    const float* at[4];
    if (four < fours) {
      inputs_of(four, at);
      magnitude[four] = four_magnitudes(at);
    } else {
      magnitude[four] = magnitude[0];
    }
  }
  const __m512 largest01 = larger_magnitude(first_pairs(magnitude[0], magnitude[1]), second_pairs(magnitude[0], magnitude[1]));
  const __m512 largest23 = larger_magnitude(first_pairs(magnitude[2], magnitude[3]), second_pairs(magnitude[2], magnitude[3]));
  const __m512 largest = larger_magnitude(even_lanes(largest01, largest23), odd_lanes(largest01, largest23));

  const __m512 zero = _mm512_setzero_ps();
  __mmask16 is_bad = _mm512_cmp_ps_mask(largest, _mm512_set1_ps(kLargest), _CMP_NLE_UQ);
  const __mmask16 counts = _mm512_cmp_ps_mask(largest, _mm512_set1_ps(kTiniest), _CMP_GT_OQ) & __mmask16(~is_bad);
  const __m512 most[2] = {_mm512_set1_ps(most_steps[0]), _mm512_set1_ps(most_steps[1])};
  alignas(64) float factors[2][kPanel];
  _mm512_store_ps(factors[0], _mm512_mask_div_ps(zero, counts, most[0], largest));
  _mm512_store_ps(factors[1], _mm512_mask_div_ps(zero, counts, most[1], largest));

  alignas(64) float dots_of[4][kPanel];
  alignas(64) int32_t counts_of[4][kPanel];
  for (int four = 0; four < fours; ++four) {
    const float* at[4];
    inputs_of(four, at);
    const FourProducts products = four_products(at, factors[0] + four, out.values + 4 * four);
    _mm512_store_ps(dots_of[four], products.dots);
    _mm512_store_si512(counts_of[four], products.counts);
  }
  __m512 d[4];
  __m512i c[4];
#pragma GCC unroll 4
  for (int four = 0; four < 4; ++four) {
    const int from = four < fours ? four : 0;
    d[four] = _mm512_load_ps(dots_of[from]);
    c[four] = _mm512_load_si512(counts_of[from]);
  }
  const __m512 dots01 = _mm512_add_ps(even_lanes(d[0], d[1]), odd_lanes(d[0], d[1]));
  const __m512 dots23 = _mm512_add_ps(even_lanes(d[2], d[3]), odd_lanes(d[2], d[3]));
  const __m512 dots[2] = {even_lanes(dots01, dots23), odd_lanes(dots01, dots23)};
  const __m512i halves01 = even_lanes(c[0], c[1]), halves23 = even_lanes(c[2], c[3]);
  const __m512i both01 = _mm512_add_epi32(halves01, odd_lanes(c[0], c[1]));
  const __m512i both23 = _mm512_add_epi32(halves23, odd_lanes(c[2], c[3]));
  const __m512i both[2] = {even_lanes(both01, both23), odd_lanes(both01, both23)};
  const __m512i halves[2] = {even_lanes(halves01, halves23), odd_lanes(halves01, halves23)};
  __m512 norms[2], explained[2];
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    norms[i] = _mm512_cvtepi32_ps(_mm512_and_si512(both[i], _mm512_set1_epi32((1 << kSumShift) - 1)));
    explained[i] = _mm512_div_ps(_mm512_mul_ps(dots[i], dots[i]), _mm512_mul_ps(norms[i], _mm512_mul_ps(most[i], most[i])));
  }
  is_bad |= _mm512_cmp_ps_mask(dots[0], dots[0], _CMP_UNORD_Q);
  const __mmask16 is_second = _mm512_cmp_ps_mask(explained[1], explained[0], _CMP_GT_OQ);
  const __m512 dot = _mm512_mask_blend_ps(is_second, dots[0], dots[1]);
  const __m512 norm = _mm512_mask_blend_ps(is_second, norms[0], norms[1]);
  const __m512 step = _mm512_div_ps(largest, _mm512_mask_blend_ps(is_second, most[0], most[1]));
  __m512 scale = _mm512_mask_mul_ps(zero, counts, _mm512_div_ps(dot, norm), step);
  scale = _mm512_mask_blend_ps(is_bad, scale, _mm512_set1_ps(__builtin_nanf("")));
  const __mmask16 is_good = __mmask16(~is_bad);
  const __m512i sum = _mm512_maskz_srai_epi32(is_good, _mm512_mask_blend_epi32(is_second, both[0], both[1]), kSumShift);
  const __m512i half =
      _mm512_maskz_srai_epi32(is_good, _mm512_mask_blend_epi32(is_second, halves[0], halves[1]), kSumShift);
  const __m512i order = lane_order();
  _mm512_store_ps(out.scale, _mm512_permutexvar_ps(order, scale));
  _mm512_store_ps(out.sum, _mm512_permutexvar_ps(order, _mm512_mul_ps(scale, _mm512_cvtepi32_ps(sum))));
  _mm512_store_si512(out.first, _mm512_permutexvar_epi32(order, half));
  _mm512_store_si512(out.second, _mm512_permutexvar_epi32(order, _mm512_sub_epi32(sum, half)));
  _mm512_store_si512(out.chosen, _mm512_permutexvar_epi32(order, _mm512_maskz_set1_epi32(is_second, kBlock)));
  if (is_bad) [[unlikely]] {
    for (int b = 0; b < count; ++b) {
      if (is_bad >> (b % 4 * 4 + b / 4) & 1) std::memset(out.values[b], 0, sizeof out.values[b]);
    }
  }
}

}  // namespace
}  // namespace pellucid
