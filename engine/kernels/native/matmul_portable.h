// Products of 8-bit rows with quantised panels, for any machine.
#pragma once
#include "lanes.h"
#include "quantized_panel.h"

namespace pellucid {
namespace {

// dot[o] += products of inputs first..first+15 of 16 outputs, opened into bytes [8][16][4], with those of a row.
inline void add_half(const uint8_t* integers, const int8_t* x, int first, int32_t* dot) {
  for (int i = first; i < first + kPanel; i += 4) {
    const uint8_t* q = integers + i * kPanel;
    for (int o = 0; o < kPanel; ++o) {
      int32_t sum = 0;
      for (int t = 0; t < 4; ++t) sum += int32_t(q[o * 4 + t]) * x[i + t];
      dot[o] += sum;
    }
  }
}

template <Format F>
inline void open_integers(const BlockView& block, uint8_t* integers) {
  for (int i = 0; i < kBlock; ++i) {
    for (int o = 0; o < kPanel; ++o) integers[i / 4 * 64 + o * 4 + i % 4] = uint8_t(integer_of<F>(block, o, i));
  }
}

// One row and block: added to total [16].
template <Format F>
inline void add_block(const BlockView& block, const uint8_t* integers, const QuantizedRows& x, int64_t group_block,
                      int place, float* total) {
  const int64_t at = group_block * kRowGroup + place;
  const int8_t* values = x.values + at * kBlock;
  int32_t dot[kPanel];
  if constexpr (bias_of(F) == 0) {
    for (int o = 0; o < kPanel; ++o) total[o] = multiply_add(offset_of<F>(block, o), x.sums[at], total[o]);
  }
  for (int half = 0; half < num_scales(F); ++half) {
    const int32_t correction = num_scales(F) == 2 ? x.half_corrections[(group_block * 2 + half) * kRowGroup + place]
                               : bias_of(F)       ? x.corrections[at]
                                                  : 0;
    for (int o = 0; o < kPanel; ++o) dot[o] = correction;
    add_half(integers, values, half * kPanel, dot);
    if constexpr (num_scales(F) == 1) add_half(integers, values, kPanel, dot);
    for (int o = 0; o < kPanel; ++o) {
      total[o] = multiply_add(float(dot[o]), scale_of<F>(block, o, half) * x.scales[at], total[o]);
    }
  }
}

template <Format F>
void quantized_panels(const PackedMatrix& w, const QuantizedRows& x, int num_rows, int first, int last, float* y,
                      int64_t stride) {
  constexpr int kRows = 8;  // that share an opened block
  const int64_t blocks = num_blocks(w);
  for (int panel = first; panel < last; ++panel) {
    const int rest = w.num_outputs - panel * kPanel, width = rest < kPanel ? rest : kPanel;
    for (int row = 0; row < num_rows; row += kRows) {
      const int count = num_rows - row < kRows ? num_rows - row : kRows;
      float total[kRows][kPanel] = {};
      for (int64_t b = 0; b < blocks; ++b) {
        const BlockView block = block_of<F>(w, panel, b);
        uint8_t integers[kBlock * kPanel];
        open_integers<F>(block, integers);
        const int64_t group_block = row / kRowGroup * blocks + b;
        for (int r = 0; r < count; ++r) {
          add_block<F>(block, integers, x, group_block, (row + r) % kRowGroup, total[r]);
        }
      }
      for (int r = 0; r < count; ++r) {
        std::memcpy(y + (row + r) * stride + panel * kPanel, total[r], size_t(width) * sizeof(float));
      }
    }
  }
}

}  // namespace
}  // namespace pellucid
