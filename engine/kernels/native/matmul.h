// Matrix products over panels of 16 outputs; kernel_table.h says how weights lie and in which order sums are taken.
#pragma once
#include "lanes.h"

namespace pellucid {
namespace {

template <Format F>
constexpr int kBytesPerBlock = F == Format::kUint4 ? 256 : 512;

#if defined(__AVX512VNNI__)

// The 8 registers of a block's weights, 16 outputs x 4 inputs each.
template <Format F>
inline void load_block(const uint8_t* q, __m512i (&w)[8]) {
  if constexpr (F == Format::kUint4) {
    const __m512i low = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const __m512i packed = _mm512_load_si512(q + 64 * j);
      w[j] = _mm512_and_si512(packed, low);
      w[j + 4] = _mm512_and_si512(_mm512_srli_epi16(packed, 4), low);
    }
  } else {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) w[j] = _mm512_load_si512(q + 64 * j);
  }
}

template <Format F, int ROWS>
inline void quantized_tile(const PackedMatrix& w, const QuantizedRows& x, int row, int panel, float* y,
                           int64_t stride) {
  const int num_blocks = w.num_inputs / kBlock;
  const uint8_t* q = static_cast<const uint8_t*>(w.values) + int64_t(panel) * num_blocks * kBytesPerBlock<F>;
  const uint16_t* d = w.scales + int64_t(panel) * num_blocks * kPanel;
  const uint16_t* m = F == Format::kUint4 ? w.offsets + int64_t(panel) * num_blocks * kPanel : nullptr;
  __m512 total[ROWS];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) total[r] = _mm512_setzero_ps();
  for (int b = 0; b < num_blocks; ++b, q += kBytesPerBlock<F>, d += kPanel) {
    __m512i weights[8];
    load_block<F>(q, weights);
    const __m512 scale = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(d)));
    __m512 offset;
    if constexpr (F == Format::kUint4) {
      offset = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(m)));
      m += kPanel;
    } else {
      offset = _mm512_mul_ps(scale, _mm512_set1_ps(-128.0f));
    }
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      const int8_t* in = x.values + int64_t(row + r) * w.num_inputs + b * kBlock;
      __m512i even = _mm512_setzero_si512(), odd = _mm512_setzero_si512();
#pragma GCC unroll 4
      for (int j = 0; j < 8; j += 2) {
        int32_t first, second;
        std::memcpy(&first, in + 4 * j, 4);
        std::memcpy(&second, in + 4 * j + 4, 4);
        even = _mm512_dpbusd_epi32(even, weights[j], _mm512_set1_epi32(first));
        odd = _mm512_dpbusd_epi32(odd, weights[j + 1], _mm512_set1_epi32(second));
      }
      const int64_t at = int64_t(row + r) * num_blocks + b;
      const __m512 dot = _mm512_cvtepi32_ps(_mm512_add_epi32(even, odd));
      total[r] = _mm512_fmadd_ps(dot, _mm512_mul_ps(scale, _mm512_set1_ps(x.scales[at])), total[r]);
      total[r] = _mm512_fmadd_ps(offset, _mm512_set1_ps(x.sums[at]), total[r]);
    }
  }
  const int rest = w.num_outputs - panel * kPanel;
  const __mmask16 mask = rest >= kPanel ? 0xffff : __mmask16((1u << rest) - 1);
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) _mm512_mask_storeu_ps(y + int64_t(row + r) * stride + panel * kPanel, mask, total[r]);
}

template <Format F>
void quantized_panels(const PackedMatrix& w, const QuantizedRows& x, int num_rows, int first, int last, float* y,
                      int64_t stride) {
  for (int panel = first; panel < last; ++panel) {
    int row = 0;
    for (; row + 8 <= num_rows; row += 8) quantized_tile<F, 8>(w, x, row, panel, y, stride);
    if (row + 4 <= num_rows) quantized_tile<F, 4>(w, x, row, panel, y, stride), row += 4;
    if (row + 2 <= num_rows) quantized_tile<F, 2>(w, x, row, panel, y, stride), row += 2;
    if (row < num_rows) quantized_tile<F, 1>(w, x, row, panel, y, stride);
  }
}

#else

template <Format F>
void quantized_panels(const PackedMatrix& w, const QuantizedRows& x, int num_rows, int first, int last, float* y,
                      int64_t stride) {
  const int num_blocks = w.num_inputs / kBlock;
  for (int panel = first; panel < last; ++panel) {
    const int rest = w.num_outputs - panel * kPanel, width = rest < kPanel ? rest : kPanel;
    for (int row = 0; row < num_rows; ++row) {
      float total[kPanel] = {};
      for (int b = 0; b < num_blocks; ++b) {
        const int64_t block = int64_t(panel) * num_blocks + b;
        const uint8_t* q = static_cast<const uint8_t*>(w.values) + block * kBytesPerBlock<F>;
        const int8_t* in = x.values + int64_t(row) * w.num_inputs + b * kBlock;
        int32_t dot[kPanel] = {};
        for (int j = 0; j < 8; ++j) {
          const uint8_t* at = q + 64 * (F == Format::kUint4 ? j & 3 : j);
          const int shift = F == Format::kUint4 && j >= 4 ? 4 : 0;
          const int mask = F == Format::kUint4 ? 15 : 255;
          for (int o = 0; o < kPanel; ++o) {
            for (int t = 0; t < 4; ++t) dot[o] += int32_t((at[o * 4 + t] >> shift) & mask) * in[4 * j + t];
          }
        }
        const float x_scale = x.scales[int64_t(row) * num_blocks + b];
        const float x_sum = x.sums[int64_t(row) * num_blocks + b];
        for (int o = 0; o < kPanel; ++o) {
          const float scale = half_to_float(w.scales[block * kPanel + o]);
          const float offset = F == Format::kUint4 ? half_to_float(w.offsets[block * kPanel + o]) : scale * -128.0f;
          total[o] = multiply_add(float(dot[o]), scale * x_scale, total[o]);
          total[o] = multiply_add(offset, x_sum, total[o]);
        }
      }
      std::memcpy(y + int64_t(row) * stride + panel * kPanel, total, size_t(width) * sizeof(float));
    }
  }
}

#endif

void matmul_quantized(const PackedMatrix& w, const QuantizedRows& x, int num_rows, int first, int last, float* y,
                      int64_t stride) {
  if (w.format == Format::kUint4) {
    quantized_panels<Format::kUint4>(w, x, num_rows, first, last, y, stride);
  } else {
    quantized_panels<Format::kUint8>(w, x, num_rows, first, last, y, stride);
  }
}

constexpr int kFloatRows = kRegisterBytes == 64 ? 8 : kRegisterBytes == 32 ? 4 : 2;

template <int ROWS>
inline void float_tile(const PackedMatrix& w, const float* x, int row, int panel, float* y, int64_t stride) {
  const float* values = static_cast<const float*>(w.values) + int64_t(panel) * w.num_inputs * kPanel;
  Lanes total[ROWS];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) total[r] = zeros();
  for (int k = 0; k < w.num_inputs; ++k) {
    const Lanes weights = load(values + int64_t(k) * kPanel);
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

void matmul_float(const PackedMatrix& w, const float* x, int num_rows, int first, int last, float* y, int64_t stride) {
  for (int panel = first; panel < last; ++panel) {
    int row = 0;
    for (; row + kFloatRows <= num_rows; row += kFloatRows) float_tile<kFloatRows>(w, x, row, panel, y, stride);
    for (; row < num_rows; ++row) float_tile<1>(w, x, row, panel, y, stride);
  }
}

}  // namespace
}  // namespace pellucid
