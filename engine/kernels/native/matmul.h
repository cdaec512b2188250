// Matrix products over panels of 16 outputs; kernel_table.h says how weights lie and in which order sums are taken.
#pragma once
#include "lanes.h"

namespace pellucid {
namespace {

template <Format F>
constexpr int kBlockBytes = F == Format::kUint4 ? kUint4BlockBytes : kUint8BlockBytes;

constexpr int kGroupBlockBytes = kRowGroup * kBlock;  // a block of eight interleaved rows

#if defined(__AVX512VNNI__)

// Products of four inputs of 16 outputs (w) with four inputs of row r of the group, added to sum.
inline __m512i add_products(__m512i sum, __m512i w, const int8_t* x, int quad, int r) {
  int32_t four;
  std::memcpy(&four, x + (quad * kRowGroup + r) * 4, 4);
  return _mm512_dpbusd_epi32(sum, w, _mm512_set1_epi32(four));
}

// The first ROWS rows of one group times one panel. All rows advance together: eight independent chains hide the latency
// of a dot product.
template <Format F, int ROWS>
inline void quantized_tile(const PackedMatrix& w, const QuantizedRows& x, int group, int panel, float* y,
                           int64_t stride) {
  const int64_t num_blocks = w.num_inputs / kBlock;
  const uint8_t* block = static_cast<const uint8_t*>(w.values) + panel * num_blocks * kBlockBytes<F>;
  const int8_t* values = x.values + group * num_blocks * kGroupBlockBytes;
  const int64_t first_scale = group * num_blocks * kRowGroup;
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
  float* out = y + int64_t(group) * kRowGroup * stride + panel * kPanel;
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) _mm512_mask_storeu_ps(out + r * stride, mask, total[r]);
}

template <Format F>
void quantized_panels(const PackedMatrix& w, const QuantizedRows& x, int num_rows, int first, int last, float* y,
                      int64_t stride) {
  for (int panel = first; panel < last; ++panel) {
    const int groups = num_rows / kRowGroup;
    for (int group = 0; group < groups; ++group) quantized_tile<F, 8>(w, x, group, panel, y, stride);
    switch (num_rows % kRowGroup) {
      case 1: quantized_tile<F, 1>(w, x, groups, panel, y, stride); break;
      case 2: quantized_tile<F, 2>(w, x, groups, panel, y, stride); break;
      case 3: quantized_tile<F, 3>(w, x, groups, panel, y, stride); break;
      case 4: quantized_tile<F, 4>(w, x, groups, panel, y, stride); break;
      case 5: quantized_tile<F, 5>(w, x, groups, panel, y, stride); break;
      case 6: quantized_tile<F, 6>(w, x, groups, panel, y, stride); break;
      case 7: quantized_tile<F, 7>(w, x, groups, panel, y, stride); break;
      default: break;
    }
  }
}

#elif defined(__AVX2__)

// Sums of four products in two 16-bit halves; 15 * 127 * 2 * 8 = 30480 of a whole block still fits.
inline __m256i add_products(__m256i sum, __m256i nibbles, const int8_t* x, int quad, int r) {
  int32_t four;
  std::memcpy(&four, x + (quad * kRowGroup + r) * 4, 4);
  return _mm256_add_epi16(sum, _mm256_maddubs_epi16(nibbles, _mm256_set1_epi32(four)));
}

// Rows row..row+ROWS-1 of one group times half a panel: eight outputs. A byte is multiplied as two nibbles, for maddubs
// would saturate on it.
template <Format F, int ROWS>
inline void quantized_tile(const PackedMatrix& w, const QuantizedRows& x, int group, int row, int panel, int half,
                           float* lanes) {
  const int64_t num_blocks = w.num_inputs / kBlock;
  const uint8_t* block = static_cast<const uint8_t*>(w.values) + panel * num_blocks * kBlockBytes<F>;
  const int8_t* values = x.values + group * num_blocks * kGroupBlockBytes + row * 4;
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

#else

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
        const int8_t* values = x.values + group_block * kGroupBlockBytes + row % kRowGroup * 4;
        const uint8_t* q = block + kHeaderBytes;
        int32_t dot[kPanel];
        float scale[kPanel];
        if constexpr (F == Format::kUint4) {
          for (int o = 0; o < kPanel; ++o) dot[o] = 0;
          for (int j = 0; j < 4; ++j) add_products(dot, q + 64 * j, 0, 15, values + j * kRowGroup * 4);
          for (int j = 0; j < 4; ++j) add_products(dot, q + 64 * j, 4, 15, values + (j + 4) * kRowGroup * 4);
          for (int o = 0; o < kPanel; ++o) {
            uint16_t halves[2];
            std::memcpy(&halves[0], block + 2 * o, 2);
            std::memcpy(&halves[1], block + 2 * (kPanel + o), 2);
            scale[o] = half_to_float(halves[0]);
            total[o] = multiply_add(half_to_float(halves[1]), x.sums[at], total[o]);
          }
        } else {
          for (int o = 0; o < kPanel; ++o) dot[o] = x.corrections[at];
          for (int j = 0; j < 8; ++j) add_products(dot, q + 64 * j, 0, 255, values + j * kRowGroup * 4);
          std::memcpy(scale, block, sizeof(scale));
        }
        for (int o = 0; o < kPanel; ++o) total[o] = multiply_add(float(dot[o]), scale[o] * x.scales[at], total[o]);
      }
      std::memcpy(y + row * stride + panel * kPanel, total, size_t(width) * sizeof(float));
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
