// Products of 8-bit rows with quantised panels: AVX2's sums of two products in 16 bits.
#pragma once
#include "lanes.h"
#include "quantized_panel.h"

namespace pellucid {
namespace {

// Quads of inputs whose products still fit into 16 bits: 8 * 2 * 15 * 127, 4 * 2 * 31 * 127, 2 * 2 * 63 * 127 < 32768.
// A byte is multiplied as two nibbles, for maddubs would saturate on it.
constexpr int quads_in_16_bits(Format f) { return 8 >> high_bits(f); }

// Inputs 4 * quad..4 * quad + 3 of eight outputs, which begin at `values`: unsigned bytes [8][4].
template <Format F>
inline __m256i integers_of(const uint8_t* values, int quad) {
  auto load = [](const uint8_t* at) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(at)); };
  if constexpr (F == Format::kUint8) return load(values + 64 * quad);
  const __m256i packed = load(values + 64 * (quad % 4)), low = _mm256_set1_epi8(15);
  const __m256i lows = _mm256_and_si256(quad < 4 ? packed : _mm256_srli_epi16(packed, 4), low);
  if constexpr (high_bits(F) == 0) return lows;
  const int from = high_bits(F) == 1 ? quad : 2 * (quad % 4);
  const __m256i plane = load(values + 256 + (high_bits(F) == 2 ? 64 * (quad / 4) : 0));
  const __m256i moved = from < 4 ? _mm256_slli_epi16(plane, 4 - from) : _mm256_srli_epi16(plane, from - 4);
  return _mm256_or_si256(lows, _mm256_and_si256(moved, _mm256_set1_epi8(high_bits(F) == 1 ? 16 : 48)));
}

inline __m256i four_inputs(const int8_t* x, int quad, int r) {
  int32_t four;
  std::memcpy(&four, x + r * kBlock + quad * 4, 4);
  return _mm256_set1_epi32(four);
}

// Adds the dot products of quads first..last-1 to dot.
template <Format F, int ROWS>
inline void add_quads(const uint8_t* values, const int8_t* x, int first, int last, __m256i (&dot)[ROWS]) {
  const __m256i ones = _mm256_set1_epi16(1), low = _mm256_set1_epi8(15);
  __m256i sum[ROWS], high_sum[ROWS];
#pragma GCC unroll 4
  for (int r = 0; r < ROWS; ++r) sum[r] = high_sum[r] = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int quad = first; quad < last; ++quad) {
    const __m256i w = integers_of<F>(values, quad);
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; ++r) {
      const __m256i four = four_inputs(x, quad, r);
      if constexpr (F == Format::kUint8) {
        sum[r] = _mm256_add_epi16(sum[r], _mm256_maddubs_epi16(_mm256_and_si256(w, low), four));
        const __m256i highs = _mm256_and_si256(_mm256_srli_epi16(w, 4), low);
        high_sum[r] = _mm256_add_epi16(high_sum[r], _mm256_maddubs_epi16(highs, four));
      } else {
        sum[r] = _mm256_add_epi16(sum[r], _mm256_maddubs_epi16(w, four));
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < ROWS; ++r) {
    dot[r] = _mm256_add_epi32(dot[r], _mm256_madd_epi16(sum[r], ones));
    if constexpr (F == Format::kUint8) {
      dot[r] = _mm256_add_epi32(dot[r], _mm256_slli_epi32(_mm256_madd_epi16(high_sum[r], ones), 4));
    }
  }
}

inline __m256 eight_halves(const uint8_t* halves) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(halves)));
}

inline __m256 eight_bytes(const uint8_t* bytes, bool is_signed) {
  const __m128i small = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes));
  return _mm256_cvtepi32_ps(is_signed ? _mm256_cvtepi8_epi32(small) : _mm256_cvtepu8_epi32(small));
}

// Scales of inputs' half `inputs` (of the block, where it has one) for the outputs' half `outputs`.
template <Format F>
inline __m256 scales_of(const BlockView& block, int inputs, int outputs) {
  if constexpr (F == Format::kUint8) return _mm256_load_ps(reinterpret_cast<const float*>(block.header) + 8 * outputs);
  const __m256 scales = eight_halves(block.header + 16 * outputs);
  if constexpr (!has_super_blocks(F)) return scales;
  const uint8_t* small = block.small_scales + kPanel * inputs + 8 * outputs;
  return _mm256_mul_ps(scales, eight_bytes(small, F == Format::kUint6K));
}

template <Format F>
inline __m256 offsets_of(const BlockView& block, int outputs) {
  const __m256 offsets = eight_halves(block.header + 32 + 16 * outputs);
  if constexpr (!has_super_blocks(F)) return offsets;
  return _mm256_mul_ps(offsets, eight_bytes(block.small_scales + kPanel + 8 * outputs, false));
}

// Rows row..row+ROWS-1 of one group times half a panel: eight outputs. next: the panel after this one, to be asked for in
// time, or null.
template <Format F, int ROWS>
inline void quantized_tile(const PackedMatrix& w, const QuantizedRows& x, int row, int panel, int outputs,
                           const uint8_t* next, float* lanes) {
  const int64_t blocks = num_blocks(w), place = row % kRowGroup;
  int64_t group_block = row / kRowGroup * blocks;
  __m256 total[ROWS];
#pragma GCC unroll 4
  for (int r = 0; r < ROWS; ++r) total[r] = _mm256_setzero_ps();
  for (int64_t b = 0; b < blocks; ++b, ++group_block) {
    const BlockView block = block_of<F>(w, panel, b);
    if (next) ask_for_block<F>(block, block_of<F>(w, panel + 1, 0).header, next);
    const int64_t at = group_block * kRowGroup + place;
    if constexpr (bias_of(F) == 0) {
      const __m256 offset = offsets_of<F>(block, outputs);
#pragma GCC unroll 4
      for (int r = 0; r < ROWS; ++r) total[r] = _mm256_fmadd_ps(offset, _mm256_set1_ps(x.sums[at + r]), total[r]);
    }
    for (int inputs = 0; inputs < num_scales(F); ++inputs) {
      __m256i dot[ROWS];
#pragma GCC unroll 4
      for (int r = 0; r < ROWS; ++r) {
        int32_t correction = 0;
        if constexpr (num_scales(F) == 2) {
          correction = x.half_corrections[(group_block * 2 + inputs) * kRowGroup + place + r];
        } else if constexpr (bias_of(F) != 0) {
          correction = x.corrections[at + r];
        }
        dot[r] = _mm256_set1_epi32(correction);
      }
      constexpr int kStep = quads_in_16_bits(F), kQuads = 8 / num_scales(F);
      for (int quad = inputs * kQuads; quad < (inputs + 1) * kQuads; quad += kStep) {
        add_quads<F, ROWS>(block.values + 32 * outputs, x.values + at * kBlock, quad, quad + kStep, dot);
      }
      const __m256 scale = scales_of<F>(block, inputs, outputs);
#pragma GCC unroll 4
      for (int r = 0; r < ROWS; ++r) {
        const __m256 both = _mm256_mul_ps(scale, _mm256_set1_ps(x.scales[at + r]));
        total[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[r]), both, total[r]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < ROWS; ++r) _mm256_storeu_ps(lanes + r * kPanel + 8 * outputs, total[r]);
}

template <Format F>
void quantized_panels(const PackedMatrix& w, const QuantizedRows& x, int num_rows, int first, int last, float* y,
                      int64_t stride) {
  constexpr int kRows = F == Format::kUint8 ? 2 : 4;
  for (int panel = first; panel < last; ++panel) {
    const uint8_t* next = panel_after<F>(w, panel, last);
    const int rest = w.num_outputs - panel * kPanel, width = rest < kPanel ? rest : kPanel;
    for (int row = 0; row < num_rows;) {
      const int count = num_rows - row >= kRows ? kRows : 1;
      float lanes[kRows * kPanel];
      for (int outputs = 0; outputs < 2; ++outputs) {
        const uint8_t* ahead = row == 0 && outputs == 0 ? next : nullptr;
        if (count == kRows) {
          quantized_tile<F, kRows>(w, x, row, panel, outputs, ahead, lanes);
        } else {
          quantized_tile<F, 1>(w, x, row, panel, outputs, ahead, lanes);
        }
      }
      for (int r = 0; r < count; ++r, ++row) {
        std::memcpy(y + row * stride + panel * kPanel, lanes + r * kPanel, size_t(width) * sizeof(float));
      }
    }
  }
}

}  // namespace
}  // namespace pellucid
