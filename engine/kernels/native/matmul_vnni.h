// Products of 8-bit rows with quantised panels: AVX-512's dot products of unsigned with signed bytes.
#pragma once
#include "blocks_avx512.h"

namespace pellucid {
namespace {

// Four inputs of 16 outputs times four inputs of ROWS rows, added to dot; x are the rows' first inputs.
template <Format F, int QUAD, int ROWS>
inline void add_quad(const uint8_t* weights, const int8_t* x, __m512i (&dot)[ROWS]) {
  const __m512i w = integers_of<F, QUAD>(weights);
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) {
    int32_t four;
    std::memcpy(&four, x + r * kBlock + QUAD * 4, 4);
    dot[r] = _mm512_dpbusd_epi32(dot[r], w, _mm512_set1_epi32(four));
  }
}

// Adds scale * x's scale * dot to each row's total.
template <int ROWS>
inline void add_scaled(const __m512i (&dot)[ROWS], __m512 scale, const float* scales, __m512 (&total)[ROWS]) {
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) {
    const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(scales[r]));
    total[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r]), both, total[r]);
  }
}

// Rows first_row..first_row+ROWS-1, all of one group, times one panel. All rows advance together: eight independent
// chains hide the latency of a dot product. next: the panel after this one, to be asked for in time, or null.
template <Format F, int ROWS>
inline void vnni_tile(const PackedMatrix& w, const QuantizedRows& x, int64_t first_row, int panel, const uint8_t* next,
                      float* y, int64_t stride) {
  const int64_t blocks = num_blocks(w), place = first_row % kRowGroup;
  int64_t group_block = first_row / kRowGroup * blocks;
  const uint8_t* end = block_of<F>(w, panel + 1, 0).header;
  __m512 total[ROWS];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) total[r] = _mm512_setzero_ps();
  for (int64_t b = 0; b < blocks; ++b, ++group_block) {
    const BlockView block = block_of<F>(w, panel, b);
    if (next) ask_for_block<F>(block, end, next);
    const int64_t at = group_block * kRowGroup + place;
    const int8_t* values = x.values + at * kBlock;
    __m512i dot[ROWS];
    if constexpr (num_scales(F) == 2) {
      const int32_t* corrections = x.half_corrections + group_block * 2 * kRowGroup + place;
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; ++r) dot[r] = _mm512_set1_epi32(corrections[r]);
      add_quad<F, 0>(block.values, values, dot);
      add_quad<F, 1>(block.values, values, dot);
      add_quad<F, 2>(block.values, values, dot);
      add_quad<F, 3>(block.values, values, dot);
      add_scaled(dot, scales_of<F>(block, 0), x.scales + at, total);
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; ++r) dot[r] = _mm512_set1_epi32(corrections[kRowGroup + r]);
      add_quad<F, 4>(block.values, values, dot);
      add_quad<F, 5>(block.values, values, dot);
      add_quad<F, 6>(block.values, values, dot);
      add_quad<F, 7>(block.values, values, dot);
      add_scaled(dot, scales_of<F>(block, 1), x.scales + at, total);
    } else {
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; ++r) {
        dot[r] = bias_of(F) ? _mm512_set1_epi32(x.corrections[at + r]) : _mm512_setzero_si512();
      }
      // In an order in which the two nibbles of a byte follow each other.
      add_quad<F, 0>(block.values, values, dot);
      add_quad<F, 4>(block.values, values, dot);
      add_quad<F, 1>(block.values, values, dot);
      add_quad<F, 5>(block.values, values, dot);
      add_quad<F, 2>(block.values, values, dot);
      add_quad<F, 6>(block.values, values, dot);
      add_quad<F, 3>(block.values, values, dot);
      add_quad<F, 7>(block.values, values, dot);
      if constexpr (bias_of(F) == 0) {
        const __m512 offset = offsets_of<F>(block);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r) total[r] = _mm512_fmadd_ps(offset, _mm512_set1_ps(x.sums[at + r]), total[r]);
      }
      add_scaled(dot, scales_of<F>(block, 0), x.scales + at, total);
    }
  }
  const int rest = w.num_outputs - panel * kPanel;
  const __mmask16 mask = rest >= kPanel ? 0xffff : __mmask16((1u << rest) - 1);
  float* out = y + first_row * stride + panel * kPanel;
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) _mm512_mask_storeu_ps(out + r * stride, mask, total[r]);
}

// Eight rows at a time, then four, two and one: fewer shapes to compile; the panel is in the cache by then.
template <Format F>
void vnni_panel(const PackedMatrix& w, const QuantizedRows& x, int num_rows, int panel, const uint8_t* next, float* y,
                int64_t stride) {
  auto multiply = [&]<int ROWS>(int row) { vnni_tile<F, ROWS>(w, x, row, panel, row ? nullptr : next, y, stride); };
  int row = 0;
  for (; row + 8 <= num_rows; row += 8) multiply.template operator()<8>(row);
  if (num_rows - row >= 4) multiply.template operator()<4>(row), row += 4;
  if (num_rows - row >= 2) multiply.template operator()<2>(row), row += 2;
  if (num_rows - row >= 1) multiply.template operator()<1>(row);
}

template <Format F>
void vnni_panels(const PackedMatrix& w, const QuantizedRows& x, int num_rows, int first, int last, float* y,
                 int64_t stride) {
  for (int panel = first; panel < last; ++panel) {
    vnni_panel<F>(w, x, num_rows, panel, panel_after<F>(w, panel, last), y, stride);
  }
}

}  // namespace
}  // namespace pellucid
