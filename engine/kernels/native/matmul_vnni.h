// Products of 8-bit rows with quantised panels: AVX-512's dot products of unsigned with signed bytes.
#pragma once
#include "lanes.h"
#include "quantized_panel.h"

namespace pellucid {
namespace {

// Products of four inputs of 16 outputs (w) with four inputs of row r of the group, added to sum.
inline __m512i add_products(__m512i sum, __m512i w, const int8_t* x, int quad, int r) {
  int32_t four;
  std::memcpy(&four, x + r * kBlock + quad * 4, 4);
  return _mm512_dpbusd_epi32(sum, w, _mm512_set1_epi32(four));
}

// Rows first_row... (a multiple of eight, ROWS of them) times one panel. All rows advance together: eight independent chains hide the latency
// of a dot product.
template <Format F, int ROWS>
inline void vnni_tile(const PackedMatrix& w, const QuantizedRows& x, int64_t first_row, int panel, float* y,
                           int64_t stride) {
  const int64_t num_blocks = w.num_inputs / kBlock;
  const uint8_t* block = static_cast<const uint8_t*>(w.values) + panel * num_blocks * kBlockBytes<F>;
  const int64_t group = first_row / kRowGroup, place = first_row % kRowGroup;
  const int8_t* values = x.values + group * num_blocks * kGroupBlockBytes + place * kBlock;
  const int64_t first_scale = group * num_blocks * kRowGroup + place;
  const float* scales = x.scales + first_scale;
  const float* sums = x.sums + first_scale;
  const int32_t* corrections = x.corrections + first_scale;
  __m512 total[ROWS];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) total[r] = _mm512_setzero_ps();
  for (int64_t b = 0; b < num_blocks; ++b) {
    if constexpr (ROWS < 4) {
      // Few rows wait for memory: ask for the stream early, a line for each line read.
#pragma GCC unroll 9
      for (int line = 0; line < kBlockBytes<F>; line += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(block + 8 * kBlockBytes<F> + line), _MM_HINT_T0);
      }
    }
    const uint8_t* q = block + kHeaderBytes;
    __m512i dot[ROWS];
    __m512 scale;
    if constexpr (F == Format::kUint4) {
      const __m512i low = _mm512_set1_epi8(15);
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; ++r) dot[r] = _mm512_setzero_si512();
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const __m512i packed = _mm512_load_si512(q + 64 * j);
        const __m512i lows = _mm512_and_si512(packed, low);
        const __m512i highs = _mm512_and_si512(_mm512_srli_epi16(packed, 4), low);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r) dot[r] = add_products(dot[r], lows, values, j, r);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r) dot[r] = add_products(dot[r], highs, values, j + 4, r);
      }
      const __m512 offset = _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(block + 32)));
      scale = _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(block)));
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; ++r) total[r] = _mm512_fmadd_ps(offset, _mm512_set1_ps(sums[r]), total[r]);
    } else {
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; ++r) dot[r] = _mm512_set1_epi32(corrections[r]);
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j) {
        const __m512i weights = _mm512_load_si512(q + 64 * j);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r) dot[r] = add_products(dot[r], weights, values, j, r);
      }
      scale = _mm512_load_ps(block);
    }
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(scales[r]));
      total[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r]), both, total[r]);
    }
    block += kBlockBytes<F>;
    values += kGroupBlockBytes;
    scales += kRowGroup;
    sums += kRowGroup;
    corrections += kRowGroup;
  }
  const int rest = w.num_outputs - panel * kPanel;
  const __mmask16 mask = rest >= kPanel ? 0xffff : __mmask16((1u << rest) - 1);
  float* out = y + first_row * stride + panel * kPanel;
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) _mm512_mask_storeu_ps(out + r * stride, mask, total[r]);
}

template <Format F>
void vnni_panel(const PackedMatrix& w, const QuantizedRows& x, int num_rows, int panel, float* y, int64_t stride) {
  constexpr int kRows = 8;
  int row = 0;
  for (; row + kRows <= num_rows; row += kRows) vnni_tile<F, kRows>(w, x, row, panel, y, stride);
  switch (num_rows - row) {
    case 1: return vnni_tile<F, 1>(w, x, row, panel, y, stride);
    case 2: return vnni_tile<F, 2>(w, x, row, panel, y, stride);
    case 3: return vnni_tile<F, 3>(w, x, row, panel, y, stride);
    case 4: return vnni_tile<F, 4>(w, x, row, panel, y, stride);
    case 5: return vnni_tile<F, 5>(w, x, row, panel, y, stride);
    case 6: return vnni_tile<F, 6>(w, x, row, panel, y, stride);
    case 7: return vnni_tile<F, 7>(w, x, row, panel, y, stride);
    default: return;
  }
}

}  // namespace
}  // namespace pellucid
