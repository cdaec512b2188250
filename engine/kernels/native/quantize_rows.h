// Rows of activations rounded to 8 bits, with a scale for every 32.
//
// A block is rounded twice, to 127 and to 125 steps up to its largest magnitude, and the better one is kept: whole numbers
// n of x have the best scale x.n / n.n and leave |x|^2 - (x.n)^2 / n.n, so the larger (x.n)^2 / n.n wins (ADR 26). Nothing is
// fused and sums have one order, so that all instruction sets choose alike.
#pragma once
#include "lanes.h"

namespace pellucid {
namespace {

constexpr float kMostSteps[2] = {127.0f, 125.0f};
// The reciprocal of a tiny maximum would overflow; such a block is zero to every practical purpose.
constexpr float kTiniest = 1e-30f, kLargest = 3.4e38f;
constexpr int kBlocksAtOnce = 16;

// Of sixteen blocks of a row.
struct BlockChoices {
  alignas(64) float factor[kBlocksAtOnce];  // what x is multiplied by before it is rounded; 0 for a block of zeros
  alignas(64) float scale[kBlocksAtOnce];   // what whole numbers are multiplied by; NaN where x isn't finite
};

struct HalfSums {
  int32_t first, second;
};

#if defined(__AVX512F__)

// The sums of a's to d's sixteen lanes, in this order: each the halves added, then the quarters and so on.
inline __m128 four_sums(__m512 a, __m512 b, __m512 c, __m512 d) {
  const __m512 ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  const __m512 cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
  __m512 all = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
  all = _mm512_add_ps(all, _mm512_permute_ps(all, 0x4e));
  all = _mm512_add_ps(all, _mm512_permute_ps(all, 0xb1));
  return _mm512_castps512_ps128(_mm512_permutexvar_ps(_mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), all));
}

// The bits of the largest magnitude in each lane of a block; those of NaN and infinity are larger than all others.
inline __m512i magnitudes(const float* in) {
  const __m512i mask = _mm512_set1_epi32(0x7fffffff);
  return _mm512_max_epi32(_mm512_and_si512(_mm512_loadu_si512(in), mask),
                          _mm512_and_si512(_mm512_loadu_si512(in + kPanel), mask));
}

inline __m512i larger_half(__m512i a, __m512i b) {
  return _mm512_max_epi32(_mm512_shuffle_i32x4(a, b, 0x44), _mm512_shuffle_i32x4(a, b, 0xee));
}

// The largest magnitudes of four blocks.
inline __m128 four_largest(const float* in) {
  const __m512i ab = larger_half(magnitudes(in), magnitudes(in + kBlock));
  const __m512i cd = larger_half(magnitudes(in + 2 * kBlock), magnitudes(in + 3 * kBlock));
  __m512i all = _mm512_max_epi32(_mm512_shuffle_i32x4(ab, cd, 0x88), _mm512_shuffle_i32x4(ab, cd, 0xdd));
  all = _mm512_max_epi32(all, _mm512_shuffle_epi32(all, _MM_PERM_BADC));
  all = _mm512_max_epi32(all, _mm512_shuffle_epi32(all, _MM_PERM_CDAB));
  const __m512i firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  return _mm_castsi128_ps(_mm512_castsi512_si128(_mm512_permutexvar_epi32(firsts, all)));
}

inline __m512 nearest(__m512 x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

// y.n and n.n of both roundings of a block, y being x in steps: {y.n of 127, of 125, n.n of 127, of 125}.
inline __m128 products_of(const float* in, float first_factor, float second_factor) {
  const __m512 low = _mm512_loadu_ps(in), high = _mm512_loadu_ps(in + kPanel);
  __m512 dots[2], norms[2];
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const __m512 factor = _mm512_set1_ps(i ? second_factor : first_factor);
    const __m512 y = _mm512_mul_ps(low, factor), z = _mm512_mul_ps(high, factor), n = nearest(y), m = nearest(z);
    dots[i] = _mm512_add_ps(_mm512_mul_ps(y, n), _mm512_mul_ps(z, m));
    norms[i] = _mm512_add_ps(_mm512_mul_ps(n, n), _mm512_mul_ps(m, m));
  }
  return four_sums(dots[0], dots[1], norms[0], norms[1]);
}

// Chooses for `count` <= 16 blocks; each scalar step is taken for all of them at once.
inline void choose_roundings(const float* in, int count, BlockChoices& out) {
  alignas(64) float largest_of[kBlocksAtOnce] = {}, products[kBlocksAtOnce][4], first_factor[kBlocksAtOnce],
      second_factor[kBlocksAtOnce];
  int b = 0;
  for (; b + 4 <= count; b += 4) _mm_store_ps(largest_of + b, four_largest(in + b * kBlock));
  for (; b < count; ++b) {
    const int32_t bits = _mm512_reduce_max_epi32(magnitudes(in + b * kBlock));
    std::memcpy(largest_of + b, &bits, 4);
  }
  const __m512 largest = _mm512_load_ps(largest_of), zero = _mm512_setzero_ps();
  const __mmask16 is_bad = _mm512_cmp_ps_mask(largest, _mm512_set1_ps(kLargest), _CMP_NLE_UQ);
  const __mmask16 counts = _mm512_cmp_ps_mask(largest, _mm512_set1_ps(kTiniest), _CMP_GT_OQ) & __mmask16(~is_bad);
  const __m512 most[2] = {_mm512_set1_ps(kMostSteps[0]), _mm512_set1_ps(kMostSteps[1])};
  const __m512 factors[2] = {_mm512_mask_div_ps(zero, counts, most[0], largest),
                             _mm512_mask_div_ps(zero, counts, most[1], largest)};
  _mm512_store_ps(first_factor, factors[0]);
  _mm512_store_ps(second_factor, factors[1]);
  for (b = 0; b < count; ++b) _mm_store_ps(products[b], products_of(in + b * kBlock, first_factor[b], second_factor[b]));

  const __m512i places = _mm512_slli_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), 2);
  const __mmask16 all = __mmask16((1u << count) - 1);
  __m512 dots[2], norms[2], explained[2];
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    dots[i] = _mm512_mask_i32gather_ps(zero, all, places, products[0] + i, 4);
    norms[i] = _mm512_mask_i32gather_ps(zero, all, places, products[0] + 2 + i, 4);
    explained[i] = _mm512_div_ps(_mm512_mul_ps(dots[i], dots[i]), _mm512_mul_ps(norms[i], _mm512_mul_ps(most[i], most[i])));
  }
  const __mmask16 is_second = _mm512_cmp_ps_mask(explained[1], explained[0], _CMP_GT_OQ);
  const __m512 dot = _mm512_mask_blend_ps(is_second, dots[0], dots[1]);
  const __m512 norm = _mm512_mask_blend_ps(is_second, norms[0], norms[1]);
  const __m512 step = _mm512_div_ps(largest, _mm512_mask_blend_ps(is_second, most[0], most[1]));
  const __m512 scale = _mm512_mask_mul_ps(zero, counts, _mm512_div_ps(dot, norm), step);
  _mm512_store_ps(out.factor, _mm512_mask_blend_ps(is_second, factors[0], factors[1]));
  _mm512_store_ps(out.scale, _mm512_mask_blend_ps(is_bad, scale, _mm512_set1_ps(__builtin_nanf(""))));
}

// Writes the whole numbers of a block; returns the sums of its halves.
inline HalfSums round_block(const float* in, float factor, int8_t* out) {
  const __m512 all = _mm512_set1_ps(factor);
  const __m128i low = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(in), all)));
  const __m128i high = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(in + kPanel), all)));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), low);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out + kPanel), high);
  // Sums of bytes exist for unsigned ones: 128 is added to each of the eight first.
  const __m256i bytes = _mm256_xor_si256(_mm256_set_m128i(high, low), _mm256_set1_epi8(char(0x80)));
  alignas(32) int64_t eights[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(eights), _mm256_sad_epu8(bytes, _mm256_setzero_si256()));
  return {int32_t(eights[0] + eights[1]) - 2048, int32_t(eights[2] + eights[3]) - 2048};
}

#else

// The sum of sixteen numbers: the halves added, then the quarters and so on.
inline float halving_sum(float* lanes) {
  for (int half = kPanel / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

// The largest magnitude of a block; NaN when an input is NaN or infinite.
inline float largest_magnitude(const float* in) {
  float largest_of[kPanel];
  bool is_finite = true;
  for (int i = 0; i < kPanel; ++i) {
    const float first = __builtin_fabsf(in[i]), second = __builtin_fabsf(in[i + kPanel]);
    largest_of[i] = first > second ? first : second;
    is_finite &= (first <= kLargest) & (second <= kLargest);
  }
  if (!is_finite) return __builtin_nanf("");
  float largest = 0.0f;
  for (int i = 0; i < kPanel; ++i) largest = largest_of[i] > largest ? largest_of[i] : largest;
  return largest;
}

struct Products {
  float dot, norm;  // y.n and n.n, y being x in steps
};

inline Products products_of(const float* in, float factor) {
  float dots[kPanel], norms[kPanel];
  for (int i = 0; i < kPanel; ++i) {
    const float y = in[i] * factor, z = in[i + kPanel] * factor;
    const float n = (y + kRoundingMagic) - kRoundingMagic, m = (z + kRoundingMagic) - kRoundingMagic;
    dots[i] = y * n + z * m;
    norms[i] = n * n + m * m;
  }
  return {halving_sum(dots), halving_sum(norms)};
}

inline void choose_roundings(const float* in, int count, BlockChoices& out) {
  for (int b = 0; b < count; ++b, in += kBlock) {
    const float largest = largest_magnitude(in);
    out.factor[b] = 0.0f;
    out.scale[b] = largest == largest ? 0.0f : largest;
    if (!(largest > kTiniest)) continue;
    Products products[2];
    float factors[2], explained[2];
    for (int i = 0; i < 2; ++i) {
      factors[i] = kMostSteps[i] / largest;
      products[i] = products_of(in, factors[i]);
      explained[i] = products[i].dot * products[i].dot / (products[i].norm * (kMostSteps[i] * kMostSteps[i]));
    }
    const int best = explained[1] > explained[0];
    out.factor[b] = factors[best];
    out.scale[b] = products[best].dot / products[best].norm * (largest / kMostSteps[best]);
  }
}

inline HalfSums round_block(const float* in, float factor, int8_t* out) {
  HalfSums sums{0, 0};
  if (factor == 0.0f) {
    std::memset(out, 0, kBlock);
    return sums;
  }
  int32_t rounded[kBlock];
  for (int i = 0; i < kBlock; ++i) rounded[i] = round_to_int(in[i] * factor);
  for (int i = 0; i < kBlock; ++i) out[i] = int8_t(rounded[i]);
  for (int i = 0; i < kPanel; ++i) sums.first += rounded[i];
  for (int i = kPanel; i < kBlock; ++i) sums.second += rounded[i];
  return sums;
}

#endif

inline void keep_rounded(const QuantizedRows& out, int64_t block, int place, float scale, const HalfSums& sums) {
  const int64_t at = block * kRowGroup + place;
  out.scales[at] = scale;
  out.sums[at] = scale * float(sums.first + sums.second);
  if (out.corrections) out.corrections[at] = -128 * (sums.first + sums.second);
  if (!out.half_corrections) return;
  out.half_corrections[block * 2 * kRowGroup + place] = -32 * sums.first;
  out.half_corrections[block * 2 * kRowGroup + kRowGroup + place] = -32 * sums.second;
}

void quantize_blocks(const float* x, int64_t stride, int num_rows, int num_blocks, const QuantizedRows& out,
                     int blocks_a_row, int first_row, int first_block) {
  BlockChoices choices;
  if (num_blocks == 1 && stride == kBlock && num_rows <= kBlocksAtOnce) {
    choose_roundings(x, num_rows, choices);
    for (int r = 0; r < num_rows; ++r) {
      const int row = first_row + r;
      const int64_t block = int64_t(row / kRowGroup) * blocks_a_row + first_block;
      const HalfSums sums = round_block(x + r * kBlock, choices.factor[r], out.values + (block * kRowGroup + row % kRowGroup) * kBlock);
      keep_rounded(out, block, row % kRowGroup, choices.scale[r], sums);
    }
    return;
  }
  for (int r = 0; r < num_rows; ++r) {
    const int row = first_row + r;
    for (int first = 0; first < num_blocks; first += kBlocksAtOnce) {
      const float* in = x + r * stride + first * kBlock;
      const int count = num_blocks - first < kBlocksAtOnce ? num_blocks - first : kBlocksAtOnce;
      choose_roundings(in, count, choices);
      for (int b = 0; b < count; ++b) {
        const int64_t block = int64_t(row / kRowGroup) * blocks_a_row + first_block + first + b;
        const HalfSums sums = round_block(in + b * kBlock, choices.factor[b], out.values + (block * kRowGroup + row % kRowGroup) * kBlock);
        keep_rounded(out, block, row % kRowGroup, choices.scale[b], sums);
      }
    }
  }
}

}  // namespace
}  // namespace pellucid
