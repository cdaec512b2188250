// Products of float rows with panels in float32, float16 or bfloat16, converted in registers.
#pragma once
#include "lanes.h"

namespace pellucid {
namespace {

constexpr int kFloatRows = kRegisterBytes == 64 ? 8 : kRegisterBytes == 32 ? 4 : 2;

template <Format F, int ROWS>
inline void float_tile(const PackedMatrix& w, const float* x, int row, int panel, float* y, int64_t stride) {
  const int64_t panel_bytes = int64_t(w.num_inputs) * kPanel * (F == Format::kFloat32 ? 4 : 2);
  const uint8_t* values = static_cast<const uint8_t*>(w.values) + panel * panel_bytes;
  Lanes total[ROWS];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) total[r] = zeros();
  for (int k = 0; k < w.num_inputs; ++k) {
    const Lanes weights = load_weights<F>(values, k);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      total[r] = multiply_add(broadcast(x[int64_t(row + r) * w.num_inputs + k]), weights, total[r]);
    }
  }
  const int rest = w.num_outputs - panel * kPanel, width = rest < kPanel ? rest : kPanel;
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) {
    float lanes[kPanel];
    store(lanes, total[r]);
    std::memcpy(y + int64_t(row + r) * stride + panel * kPanel, lanes, size_t(width) * sizeof(float));
  }
}

template <Format F>
void float_panels(const PackedMatrix& w, const float* x, int num_rows, int first, int last, float* y, int64_t stride) {
  for (int panel = first; panel < last; ++panel) {
    int row = 0;
    for (; row + kFloatRows <= num_rows; row += kFloatRows) float_tile<F, kFloatRows>(w, x, row, panel, y, stride);
    for (; row < num_rows; ++row) float_tile<F, 1>(w, x, row, panel, y, stride);
  }
}

void matmul_float(const PackedMatrix& w, const float* x, int num_rows, int first, int last, float* y, int64_t stride) {
  if (w.format == Format::kBFloat16) {
    float_panels<Format::kBFloat16>(w, x, num_rows, first, last, y, stride);
  } else if (w.format == Format::kFloat16) {
    float_panels<Format::kFloat16>(w, x, num_rows, first, last, y, stride);
  } else {
    float_panels<Format::kFloat32>(w, x, num_rows, first, last, y, stride);
  }
}

}  // namespace
}  // namespace pellucid
