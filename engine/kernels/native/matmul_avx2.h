// Products of 8-bit rows with quantised panels: AVX2's sums of two products in 16 bits.
#pragma once
#include "lanes.h"
#include "quantized_panel.h"

namespace pellucid {
namespace {

// Sums of four products in two 16-bit halves; 15 * 127 * 2 * 8 = 30480 of a whole block still fits.
inline __m256i add_products(__m256i sum, __m256i nibbles, const int8_t* x, int quad, int r) {
  int32_t four;
  std::memcpy(&four, x + r * kBlock + quad * 4, 4);
  return _mm256_add_epi16(sum, _mm256_maddubs_epi16(nibbles, _mm256_set1_epi32(four)));
}

// Rows row..row+ROWS-1 of one group times half a panel: eight outputs. A byte is multiplied as two nibbles, for maddubs
// would saturate on it.
template <Format F, int ROWS>
inline void quantized_tile(const PackedMatrix& w, const QuantizedRows& x, int group, int row, int panel, int half,
                           float* lanes) {
  const int64_t num_blocks = w.num_inputs / kBlock;
  const uint8_t* block = static_cast<const uint8_t*>(w.values) + panel * num_blocks * kBlockBytes<F>;
  const int8_t* values = x.values + group * num_blocks * kGroupBlockBytes + row * kBlock;
  int64_t at = group * num_blocks * kRowGroup + row;
  const __m256i low = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
  __m256 total[ROWS];
#pragma GCC unroll 4
  for (int r = 0; r < ROWS; ++r) total[r] = _mm256_setzero_ps();
  for (int64_t b = 0; b < num_blocks; ++b) {
    const uint8_t* q = block + kHeaderBytes + 32 * half;
    __m256i lows[ROWS], highs[ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; ++r) lows[r] = highs[r] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int j = 0; j < (F == Format::kUint4 ? 4 : 8); ++j) {
      const __m256i packed = _mm256_load_si256(reinterpret_cast<const __m256i*>(q + 64 * j));
      const __m256i low_nibbles = _mm256_and_si256(packed, low);
      const __m256i high_nibbles = _mm256_and_si256(_mm256_srli_epi16(packed, 4), low);
#pragma GCC unroll 4
      for (int r = 0; r < ROWS; ++r) {
        lows[r] = add_products(lows[r], low_nibbles, values, j, r);
        if constexpr (F == Format::kUint4) {
          lows[r] = add_products(lows[r], high_nibbles, values, j + 4, r);
        } else {
          highs[r] = add_products(highs[r], high_nibbles, values, j, r);
        }
      }
    }
    __m256 scale;
    if constexpr (F == Format::kUint4) {
      scale = _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(block + 16 * half)));
      const __m256 offset = _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(block + 32 + 16 * half)));
#pragma GCC unroll 4
      for (int r = 0; r < ROWS; ++r) total[r] = _mm256_fmadd_ps(offset, _mm256_set1_ps(x.sums[at + r]), total[r]);
    } else {
      scale = _mm256_load_ps(reinterpret_cast<const float*>(block) + 8 * half);
    }
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; ++r) {
      __m256i dot = _mm256_madd_epi16(lows[r], ones);
      if constexpr (F == Format::kUint8) {
        dot = _mm256_add_epi32(dot, _mm256_slli_epi32(_mm256_madd_epi16(highs[r], ones), 4));
        dot = _mm256_add_epi32(dot, _mm256_set1_epi32(x.corrections[at + r]));
      }
      const __m256 both = _mm256_mul_ps(scale, _mm256_set1_ps(x.scales[at + r]));
      total[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), both, total[r]);
    }
    block += kBlockBytes<F>;
    values += kGroupBlockBytes;
    at += kRowGroup;
  }
#pragma GCC unroll 4
  for (int r = 0; r < ROWS; ++r) _mm256_storeu_ps(lanes + r * kPanel + 8 * half, total[r]);
}

template <Format F>
void quantized_panels(const PackedMatrix& w, const QuantizedRows& x, int num_rows, int first, int last, float* y,
                      int64_t stride) {
  constexpr int kRows = F == Format::kUint4 ? 4 : 2;
  for (int panel = first; panel < last; ++panel) {
    const int rest = w.num_outputs - panel * kPanel, width = rest < kPanel ? rest : kPanel;
    for (int row = 0; row < num_rows;) {
      const int group = row / kRowGroup, place = row % kRowGroup, count = num_rows - row >= kRows ? kRows : 1;
      float lanes[kRows * kPanel];
      for (int half = 0; half < 2; ++half) {
        if (count == kRows) {
          quantized_tile<F, kRows>(w, x, group, place, panel, half, lanes);
        } else {
          quantized_tile<F, 1>(w, x, group, place, panel, half, lanes);
        }
      }
      for (int r = 0; r < count; ++r, ++row) {
        std::memcpy(y + row * stride + panel * kPanel, lanes + r * kPanel, size_t(width) * sizeof(float));
      }
    }
  }
}

}  // namespace
}  // namespace pellucid
