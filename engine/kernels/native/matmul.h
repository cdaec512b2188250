// Matrix products over panels of 16 outputs; kernel_table.h says how weights lie and in which order sums are taken.
#pragma once
#include "matmul_float.h"
#if defined(__AMX_INT8__)
#include "gate_tiles.h"
#include "matmul_amx.h"
#include "matmul_tiled.h"
#elif defined(__AVX512VNNI__)
#include "matmul_vnni.h"
#elif defined(__AVX2__)
#include "matmul_avx2.h"
#else
#include "matmul_portable.h"
#endif

namespace pellucid {
namespace {

#if !defined(__AMX_INT8__)
constexpr auto pair_blocks =
    static_cast<void (*)(const float*, int64_t, int, int, uint16_t*, int, int, int)>(nullptr);
constexpr auto gate_tiles =
    static_cast<void (*)(const float*, const float*, int, int, uint16_t*, int, int)>(nullptr);
constexpr auto matmul_tiled =
    static_cast<void (*)(const PackedMatrix&, const uint16_t*, int, int, int, float*, int64_t)>(nullptr);
constexpr auto matmul_into_tiles =
    static_cast<void (*)(const PackedMatrix&, const uint16_t*, int, int, int, float*)>(nullptr);
#endif

#if !defined(__AVX512VNNI__)
constexpr bool kHalvesProducts = false;
#endif

#if defined(__AVX512VNNI__) && !defined(__AMX_INT8__)
template <Format F>
void quantized_panels(const PackedMatrix& w, const QuantizedRows& x, int num_rows, int first, int last, float* y,
                      int64_t stride) {
  vnni_panels<F>(w, x, num_rows, first, last, y, stride);
}
#endif

void matmul_quantized(const PackedMatrix& w, const QuantizedRows& x, int num_rows, int first, int last, float* y,
                      int64_t stride) {
  switch (w.format) {
    case Format::kUint4: return quantized_panels<Format::kUint4>(w, x, num_rows, first, last, y, stride);
    case Format::kUint5: return quantized_panels<Format::kUint5>(w, x, num_rows, first, last, y, stride);
    case Format::kUint4K: return quantized_panels<Format::kUint4K>(w, x, num_rows, first, last, y, stride);
    case Format::kUint5K: return quantized_panels<Format::kUint5K>(w, x, num_rows, first, last, y, stride);
    case Format::kUint6K: return quantized_panels<Format::kUint6K>(w, x, num_rows, first, last, y, stride);
    default: return quantized_panels<Format::kUint8>(w, x, num_rows, first, last, y, stride);
  }
}

}  // namespace
}  // namespace pellucid
