// Products of 8-bit rows with quantised panels: AVX-512's dot products of unsigned with signed bytes.
#pragma once
#include "blocks_avx512.h"
#include "matmul_halved.h"

namespace pellucid {
namespace {

// Four inputs of 16 outputs of each panel times four inputs of ROWS rows, added to dot; x are the rows' first inputs.
template <Format F, int QUAD, int PANELS, int ROWS>
inline void add_quad(const BlockView (&blocks)[PANELS], const int8_t* x, __m512i (&dot)[PANELS][ROWS]) {
  __m512i w[PANELS];
#pragma GCC unroll 3
  for (int p = 0; p < PANELS; ++p) w[p] = integers_of<F, QUAD>(blocks[p].values);
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) {
    int32_t four;
    std::memcpy(&four, x + r * kBlock + QUAD * 4, 4);
    const __m512i inputs = _mm512_set1_epi32(four);
#pragma GCC unroll 3
    for (int p = 0; p < PANELS; ++p) dot[p][r] = _mm512_dpbusd_epi32(dot[p][r], w[p], inputs);
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

// Sums start from each row's correction, or from zero.
template <int PANELS, int ROWS>
inline void start_dots(const int32_t* corrections, __m512i (&dot)[PANELS][ROWS]) {
#pragma GCC unroll 3
  for (int p = 0; p < PANELS; ++p) {
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) dot[p][r] = corrections ? _mm512_set1_epi32(corrections[r]) : _mm512_setzero_si512();
  }
}

// ROWS rows from first_row on, all of one group, times PANELS panels; the first num_rows of them are written. Eight or more
// independent chains hide the latency of a dot product, and panels share what is read of the rows. next: the panels after
// these, to be asked for in time, or null.
template <Format F, int ROWS, int PANELS>
inline void vnni_tile(const PackedMatrix& w, const QuantizedRows& x, int64_t first_row, int num_rows, int panel,
                      const uint8_t* next, float* y, int64_t stride) {
  const int64_t blocks = num_blocks(w), place = first_row % kRowGroup;
  int64_t group_block = first_row / kRowGroup * blocks;
  __m512 total[PANELS][ROWS];
#pragma GCC unroll 3
  for (int p = 0; p < PANELS; ++p) {
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) total[p][r] = _mm512_setzero_ps();
  }
  for (int64_t b = 0; b < blocks; ++b, ++group_block) {
    BlockView block[PANELS];
#pragma GCC unroll 3
    for (int p = 0; p < PANELS; ++p) block[p] = block_of<F>(w, panel + p, b);
    if (next) {
      if constexpr (PANELS == 1) {
        ask_for_block<F>(block[0], block_of<F>(w, panel + 1, 0).header, next);
      } else {
        ask_for_same_block<F, PANELS>(w, b, next);
      }
    }
    const int64_t at = group_block * kRowGroup + place;
    const int8_t* values = x.values + at * kBlock;
    __m512i dot[PANELS][ROWS];
    if constexpr (num_scales(F) == 2) {
      const int32_t* corrections = x.half_corrections + group_block * 2 * kRowGroup + place;
      start_dots(corrections, dot);
      add_quad<F, 0>(block, values, dot);
      add_quad<F, 1>(block, values, dot);
      add_quad<F, 2>(block, values, dot);
      add_quad<F, 3>(block, values, dot);
#pragma GCC unroll 3
      for (int p = 0; p < PANELS; ++p) add_scaled(dot[p], scales_of<F>(block[p], 0), x.scales + at, total[p]);
      start_dots(corrections + kRowGroup, dot);
      add_quad<F, 4>(block, values, dot);
      add_quad<F, 5>(block, values, dot);
      add_quad<F, 6>(block, values, dot);
      add_quad<F, 7>(block, values, dot);
#pragma GCC unroll 3
      for (int p = 0; p < PANELS; ++p) add_scaled(dot[p], scales_of<F>(block[p], 1), x.scales + at, total[p]);
    } else {
      start_dots(bias_of(F) ? x.corrections + at : nullptr, dot);
      // In an order in which the two nibbles of a byte follow each other.
      add_quad<F, 0>(block, values, dot);
      add_quad<F, 4>(block, values, dot);
      add_quad<F, 1>(block, values, dot);
      add_quad<F, 5>(block, values, dot);
      add_quad<F, 2>(block, values, dot);
      add_quad<F, 6>(block, values, dot);
      add_quad<F, 3>(block, values, dot);
      add_quad<F, 7>(block, values, dot);
#pragma GCC unroll 3
      for (int p = 0; p < PANELS; ++p) {
        if constexpr (bias_of(F) == 0) {
          const __m512 offset = offsets_of<F>(block[p]);
#pragma GCC unroll 8
          for (int r = 0; r < ROWS; ++r) {
            total[p][r] = _mm512_fmadd_ps(offset, _mm512_set1_ps(x.sums[at + r]), total[p][r]);
          }
        }
        add_scaled(dot[p], scales_of<F>(block[p], 0), x.scales + at, total[p]);
      }
    }
  }
#pragma GCC unroll 3
  for (int p = 0; p < PANELS; ++p) {
    const int rest = w.num_outputs - (panel + p) * kPanel;
    const __mmask16 mask = rest >= kPanel ? 0xffff : __mmask16((1u << rest) - 1);
    float* out = y + first_row * stride + (panel + p) * kPanel;
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      if (r < num_rows) _mm512_mask_storeu_ps(out + r * stride, mask, total[p][r]);
    }
  }
}

// Many rows: four at a time, of the last ones' group also places that hold nothing, times PANELS panels. A broadcast of the
// rows' inputs serves all panels; with one panel, loads and not products would be what takes longest.
template <Format F, int PANELS>
void vnni_panels_together(const PackedMatrix& w, const QuantizedRows& x, int num_rows, int panel, const uint8_t* next,
                          float* y, int64_t stride) {
  for (int row = 0; row < num_rows; row += 4) {
    const int count = num_rows - row < 4 ? num_rows - row : 4;
    vnni_tile<F, 4, PANELS>(w, x, row, count, panel, row ? nullptr : next, y, stride);
  }
}

// Few rows, which wait for memory: eight at a time, then four, two and one: fewer shapes to compile; the panel is in the
// cache by then.
template <Format F>
void vnni_panel(const PackedMatrix& w, const QuantizedRows& x, int num_rows, int panel, const uint8_t* next, float* y,
                int64_t stride) {
  auto multiply = [&]<int ROWS>(int row) { vnni_tile<F, ROWS, 1>(w, x, row, ROWS, panel, row ? nullptr : next, y, stride); };
  int row = 0;
  for (; row + 8 <= num_rows; row += 8) multiply.template operator()<8>(row);
  if (num_rows - row >= 4) multiply.template operator()<4>(row), row += 4;
  if (num_rows - row >= 2) multiply.template operator()<2>(row), row += 2;
  if (num_rows - row >= 1) multiply.template operator()<1>(row);
}

template <Format F>
void vnni_panels(const PackedMatrix& w, const QuantizedRows& x, int num_rows, int first, int last, float* y,
                 int64_t stride) {
  int panel = first;
  // The panels behind a call's last ones are of another matrix, or of nothing.
  const auto after = [&](int count) { return panel_after<F>(w, panel + count - 1, last); };
  if constexpr (kHalvesProducts && is_uint4(F)) {
    if (num_rows >= kRowsForPanels && x.halved_starts && additions_run_beside_products()) {
      for (; panel + kHalvedPanels <= last; panel += kHalvedPanels) {
        halved_panels<F>(w, x, num_rows, panel, after(kHalvedPanels), y, stride);
      }
    }
  }
  if (num_rows >= kRowsForPanels) {
    for (; panel + 3 <= last; panel += 3) vnni_panels_together<F, 3>(w, x, num_rows, panel, after(3), y, stride);
    if (panel + 2 <= last) vnni_panels_together<F, 2>(w, x, num_rows, panel, after(2), y, stride), panel += 2;
  }
  for (; panel < last; ++panel) vnni_panel<F>(w, x, num_rows, panel, panel_after<F>(w, panel, last), y, stride);
}

}  // namespace
}  // namespace pellucid
