// Products of 8-bit rows with quantised panels, for any machine.
#pragma once
#include "lanes.h"
#include "quantized_panel.h"

namespace pellucid {
namespace {

// dot[o] += products of four inputs of 16 outputs, a nibble or a byte each, with four inputs of a row.
inline void add_products(int32_t* dot, const uint8_t* q, int shift, int mask, const int8_t* x) {
  for (int o = 0; o < kPanel; ++o) {
    int32_t sum = 0;
    for (int t = 0; t < 4; ++t) sum += int32_t((q[o * 4 + t] >> shift) & mask) * x[t];
    dot[o] += sum;
  }
}

template <Format F>
void quantized_panels(const PackedMatrix& w, const QuantizedRows& x, int num_rows, int first, int last, float* y,
                      int64_t stride) {
  const int64_t num_blocks = w.num_inputs / kBlock;
  for (int panel = first; panel < last; ++panel) {
    const int rest = w.num_outputs - panel * kPanel, width = rest < kPanel ? rest : kPanel;
    for (int row = 0; row < num_rows; ++row) {
      const uint8_t* block = static_cast<const uint8_t*>(w.values) + panel * num_blocks * kBlockBytes<F>;
      float total[kPanel] = {};
      for (int64_t b = 0; b < num_blocks; ++b, block += kBlockBytes<F>) {
        const int64_t group_block = row / kRowGroup * num_blocks + b, at = group_block * kRowGroup + row % kRowGroup;
        const int8_t* values = x.values + group_block * kGroupBlockBytes + row % kRowGroup * kBlock;
        const uint8_t* q = block + kHeaderBytes;
        int32_t dot[kPanel];
        float scale[kPanel];
        if constexpr (F == Format::kUint4) {
          for (int o = 0; o < kPanel; ++o) dot[o] = 0;
          for (int j = 0; j < 4; ++j) add_products(dot, q + 64 * j, 0, 15, values + j * 4);
          for (int j = 0; j < 4; ++j) add_products(dot, q + 64 * j, 4, 15, values + (j + 4) * 4);
          for (int o = 0; o < kPanel; ++o) {
            uint16_t halves[2];
            std::memcpy(&halves[0], block + 2 * o, 2);
            std::memcpy(&halves[1], block + 2 * (kPanel + o), 2);
            scale[o] = half_to_float(halves[0]);
            total[o] = multiply_add(half_to_float(halves[1]), x.sums[at], total[o]);
          }
        } else {
          for (int o = 0; o < kPanel; ++o) dot[o] = x.corrections[at];
          for (int j = 0; j < 8; ++j) add_products(dot, q + 64 * j, 0, 255, values + j * 4);
          std::memcpy(scale, block, sizeof(scale));
        }
        for (int o = 0; o < kPanel; ++o) total[o] = multiply_add(float(dot[o]), scale[o] * x.scales[at], total[o]);
      }
      std::memcpy(y + row * stride + panel * kPanel, total, size_t(width) * sizeof(float));
    }
  }
}

}  // namespace
}  // namespace pellucid
