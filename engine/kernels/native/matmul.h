// Matrix products over panels of 16 outputs; kernel_table.h says how weights lie and in which order sums are taken.
#pragma once
#include "matmul_float.h"
#if defined(__AMX_BF16__)
#include "matmul_amx.h"
#else
#include "quantized_rows.h"
#if defined(__AVX512VNNI__)
#include "matmul_vnni.h"
#elif defined(__AVX2__)
#include "matmul_avx2.h"
#else
#include "matmul_portable.h"
#endif
#endif

namespace pellucid {
namespace {

// How weights lie and rows are rounded for these products.
#if defined(__AMX_BF16__)
constexpr PanelOrder kPanelOrder = PanelOrder::kRows;
constexpr auto round_row = pair_row;
#else
constexpr PanelOrder kPanelOrder = PanelOrder::kQuads;
constexpr auto round_row = quantize_row;
#endif

#if defined(__AVX512VNNI__) && !defined(__AMX_BF16__)
template <Format F>
void rounded_panels(const PackedMatrix& w, const RoundedRows& x, int num_rows, int first, int last, float* y,
                      int64_t stride) {
  for (int panel = first; panel < last; ++panel) vnni_panel<F>(w, x, num_rows, panel, y, stride);
}
#endif

void matmul_rounded(const PackedMatrix& w, const RoundedRows& x, int num_rows, int first, int last, float* y,
                      int64_t stride) {
  switch (w.format) {
    case Format::kUint4: return rounded_panels<Format::kUint4>(w, x, num_rows, first, last, y, stride);
    case Format::kUint5: return rounded_panels<Format::kUint5>(w, x, num_rows, first, last, y, stride);
    case Format::kUint4K: return rounded_panels<Format::kUint4K>(w, x, num_rows, first, last, y, stride);
    case Format::kUint5K: return rounded_panels<Format::kUint5K>(w, x, num_rows, first, last, y, stride);
    case Format::kUint6K: return rounded_panels<Format::kUint6K>(w, x, num_rows, first, last, y, stride);
#if defined(__AMX_BF16__)
    case Format::kFloat16: return rounded_panels<Format::kFloat16>(w, x, num_rows, first, last, y, stride);
    case Format::kBFloat16: return rounded_panels<Format::kBFloat16>(w, x, num_rows, first, last, y, stride);
#endif
    default: return rounded_panels<Format::kUint8>(w, x, num_rows, first, last, y, stride);
  }
}

}  // namespace
}  // namespace pellucid
