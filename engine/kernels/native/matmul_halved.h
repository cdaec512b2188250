// Products of 8-bit rows with 4-bit panels in half as many multiplications: Winograd's inner product (IEEE Transactions on
// Computers C-17, 1968). For an input x of a block's first half, y of its second and their weights a and b
//
//   x a + y b = (x + b - 8) (y + a + 120) - (b - 8) (a + 120) - (x y + 120 x - 8 y)
//
// where the second product belongs to the weights alone and the third to the row (halved_starts.h). For rows of -120..120 and
// weights of 0..15 the first one's factors are bytes, one signed and one unsigned, so every sum is the same integer that eight
// dot products give, and not a bit of the result changes. It takes four of them and eight additions of bytes: worth it where
// additions run on units that products leave idle (AMD: four vector units, two of them multiply), not where they share two.
#pragma once
#include "blocks_avx512.h"

namespace pellucid {
namespace {

#if defined(__AVX512BF16__) && !defined(__AMX_INT8__)
constexpr bool kHalvesProducts = true;
#else
constexpr bool kHalvesProducts = false;
#endif

inline bool additions_run_beside_products() {
  static const bool is_amd = [] {
    __builtin_cpu_init();
    return bool(__builtin_cpu_is("amd"));
  }();
  return is_amd;
}

// A block's weights of 16 outputs, made ready for all rows.
struct alignas(64) HalvedBlock {
  uint8_t added_to_second[4][64];  // a + 120
  int8_t added_to_first[4][64];    // b - 8
  int32_t start[kPanel];           // -(b - 8) (a + 120), summed
  float scale[kPanel], offset[kPanel];
};

// Made ready together, to stay in the first cache while all rows pass: 25 of its 48 KiB, which a core may share with others.
constexpr int kHalvedPanels = 2, kHalvedBlocks = 18;

template <Format F>
inline void make_ready(const BlockView& block, HalvedBlock& out) {
  const __m512i low = _mm512_set1_epi8(15);
  __m512i products = _mm512_setzero_si512();
#pragma GCC unroll 4
  for (int quad = 0; quad < 4; ++quad) {
    const __m512i packed = _mm512_load_si512(block.values + 64 * quad);
    const __m512i a = _mm512_add_epi8(_mm512_and_si512(packed, low), _mm512_set1_epi8(120));
    const __m512i b = _mm512_sub_epi8(_mm512_and_si512(_mm512_srli_epi16(packed, 4), low), _mm512_set1_epi8(8));
    products = _mm512_dpbusd_epi32(products, a, b);
    _mm512_store_si512(out.added_to_second[quad], a);
    _mm512_store_si512(out.added_to_first[quad], b);
  }
  _mm512_store_si512(out.start, _mm512_sub_epi32(_mm512_setzero_si512(), products));
  _mm512_store_ps(out.scale, scales_of<F>(block, 0));
  _mm512_store_ps(out.offset, offsets_of<F>(block));
}

inline __m512i four_of_row(const int8_t* values) {
  int32_t four;
  std::memcpy(&four, values, 4);
  return _mm512_set1_epi32(four);
}

// Keeps a value in a register that several instructions use, instead of one load of memory for each.
template <typename T>
inline T held(T value) {
  asm("" : "+v"(value));
  return value;
}

// What a tile of four rows and two panels goes through: blocks first..first + count - 1.
struct HalvedStretch {
  const HalvedBlock* weights;  // [panel][count]
  int64_t first;
  int count;
  bool is_first;
};

template <Format F>
inline void halved_tile(const PackedMatrix& w, const QuantizedRows& x, const HalvedStretch& stretch, int first_row, int num_rows,
                        int panel, const uint8_t* next, float* y, int64_t stride) {
  constexpr int kRows = 4, kPanels = kHalvedPanels;
  float* const out = y + first_row * stride + panel * kPanel;
  const auto mask_of = [&](int p) {
    const int rest = w.num_outputs - (panel + p) * kPanel;
    return rest >= kPanel ? __mmask16(0xffff) : __mmask16((1u << rest) - 1);
  };
  __m512 total[kPanels][kRows];
#pragma GCC unroll 2
  for (int p = 0; p < kPanels; ++p) {
    const __mmask16 mask = mask_of(p);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      total[p][r] = _mm512_setzero_ps();
      if (!stretch.is_first && r < num_rows) total[p][r] = _mm512_maskz_loadu_ps(mask, out + r * stride + p * kPanel);
    }
  }
  int64_t at = (first_row / kRowGroup * num_blocks(w) + stretch.first) * kRowGroup + first_row % kRowGroup;
  for (int b = 0; b < stretch.count; ++b, at += kRowGroup) {
    if (next) ask_for_same_block<F, kHalvedPanels>(w, stretch.first + b, next);
    const HalvedBlock* block[kPanels];
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) block[p] = stretch.weights + p * stretch.count + b;
    __m512i dot[kPanels][kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const __m512i start = held(_mm512_set1_epi32(x.halved_starts[at + r]));
#pragma GCC unroll 2
      for (int p = 0; p < kPanels; ++p) dot[p][r] = _mm512_add_epi32(_mm512_load_si512(block[p]->start), start);
    }
#pragma GCC unroll 4
    for (int quad = 0; quad < 4; ++quad) {
      __m512i a[kPanels], b[kPanels];
#pragma GCC unroll 2
      for (int p = 0; p < kPanels; ++p) {
        a[p] = _mm512_load_si512(block[p]->added_to_second[quad]);
        b[p] = _mm512_load_si512(block[p]->added_to_first[quad]);
      }
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const int8_t* values = x.values + (at + r) * kBlock + 4 * quad;
        const __m512i first = four_of_row(values), second = four_of_row(values + kBlock / 2);
#pragma GCC unroll 2
        for (int p = 0; p < kPanels; ++p) {
          dot[p][r] = _mm512_dpbusd_epi32(dot[p][r], _mm512_add_epi8(second, a[p]), _mm512_add_epi8(first, b[p]));
        }
      }
    }
    __m512 scale[kPanels], offset[kPanels];
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) {
      scale[p] = _mm512_load_ps(block[p]->scale);
      offset[p] = _mm512_load_ps(block[p]->offset);
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const __m512 sum = held(_mm512_set1_ps(x.sums[at + r])), row_scale = held(_mm512_set1_ps(x.scales[at + r]));
#pragma GCC unroll 2
      for (int p = 0; p < kPanels; ++p) {
        total[p][r] = _mm512_fmadd_ps(offset[p], sum, total[p][r]);
        total[p][r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[p][r]), _mm512_mul_ps(scale[p], row_scale), total[p][r]);
      }
    }
  }
#pragma GCC unroll 2
  for (int p = 0; p < kPanels; ++p) {
    const __mmask16 mask = mask_of(p);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      if (r < num_rows) _mm512_mask_storeu_ps(out + r * stride + p * kPanel, mask, total[p][r]);
    }
  }
}

// Many rows times two panels: a stretch of blocks is made ready once, then four rows at a time pass.
template <Format F>
void halved_panels(const PackedMatrix& w, const QuantizedRows& x, int num_rows, int panel, const uint8_t* next, float* y,
                   int64_t stride) {
  HalvedBlock ready[kHalvedPanels * kHalvedBlocks];
  const int64_t blocks = num_blocks(w), stretches = (blocks + kHalvedBlocks - 1) / kHalvedBlocks;
  const int64_t most = (blocks + stretches - 1) / stretches;
  for (int64_t first = 0; first < blocks; first += most) {
    const int count = int(blocks - first < most ? blocks - first : most);
    for (int p = 0; p < kHalvedPanels; ++p) {
      for (int b = 0; b < count; ++b) make_ready<F>(block_of<F>(w, panel + p, first + b), ready[p * count + b]);
    }
    const HalvedStretch stretch{ready, first, count, first == 0};
    for (int row = 0; row < num_rows; row += 4) {
      const int rows = num_rows - row < 4 ? num_rows - row : 4;
      halved_tile<F>(w, x, stretch, row, rows, panel, row ? nullptr : next, y, stride);
    }
  }
}

}  // namespace
}  // namespace pellucid
