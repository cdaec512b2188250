// Products of 8-bit rows with quantised panels in the tile registers of AMX.
//
// A panel is opened into bytes once for all rows; a tile product is the exact integer dot products of one block of 32
// inputs, of 16 rows with 16 outputs. What is done with them in float is what matmul_vnni.h does, in the same order, so
// that a row has the same bits whichever of the two computes it. At most 32 of a tile's 64 bytes of depth are used, as
// each block has scales of its own: the float part (four operations a block, row and 16 outputs) takes twice the time
// of the tile product beside it.
#pragma once
#include "amx_tiles.h"
#include "matmul_vnni.h"

namespace pellucid {
namespace {

constexpr int kFewRows = 4;  // up to here dot products of single rows are faster
constexpr int kOpenBlocks = 64;  // blocks opened at a time

// Accumulators 0 and 1, activations 4, weights 6.
constexpr TileShape kBlockTiles[kTileRegisters] = {{16, 64}, {16, 64}, {}, {}, {16, 32}, {}, {8, 64}, {}};

// A stretch of a panel: w = scale * q + offset.
struct OpenPanel {
  alignas(64) int8_t values[kOpenBlocks][8][16][4];  // q; a kUint8 weight is q - 128 here and has no offset
  float scales[kOpenBlocks][kPanel];
  float offsets[kOpenBlocks][kPanel];
};

template <Format F>
inline void open_block(const uint8_t* block, OpenPanel& out, int64_t b) {
  uint8_t* values = reinterpret_cast<uint8_t*>(out.values[b]);
  const uint8_t* q = block + kHeaderBytes;
  if constexpr (F == Format::kUint4) {
    const __m512i low = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const __m512i packed = _mm512_load_si512(q + 64 * j);
      _mm512_store_si512(values + 64 * j, _mm512_and_si512(packed, low));
      _mm512_store_si512(values + 64 * (j + 4), _mm512_and_si512(_mm512_srli_epi16(packed, 4), low));
    }
    const __m256i* halves = reinterpret_cast<const __m256i*>(block);
    _mm512_store_ps(out.scales[b], _mm512_cvtph_ps(_mm256_load_si256(halves)));
    _mm512_store_ps(out.offsets[b], _mm512_cvtph_ps(_mm256_load_si256(halves + 1)));
  } else {
    const __m512i sign = _mm512_set1_epi8(-128);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      _mm512_store_si512(values + 64 * j, _mm512_xor_si512(_mm512_load_si512(q + 64 * j), sign));
    }
    _mm512_store_ps(out.scales[b], _mm512_load_ps(block));
  }
}

// The dot products of one block, into dots [16 rows][16 outputs].
template <int TILE>
inline void multiply_block(const int8_t* x, const OpenPanel& panel, int64_t b, int32_t* dots) {
  tile_zero<TILE>();
  tile_load<4>(x, kBlock);
  tile_load<6>(panel.values[b], 64);
  tile_add_products<TILE, 4, 6>();
  tile_store<TILE>(dots, 64);
}

// Adds the dot products of block b to the rows' totals.
template <Format F, int ROWS>
inline void add_block(const int32_t* dots, const OpenPanel& panel, int64_t b, const float* scales, const float* sums,
                      __m512 (&total)[ROWS]) {
  const __m512 scale = _mm512_load_ps(panel.scales[b]);
  __m512 offset;
  if constexpr (F == Format::kUint4) offset = _mm512_load_ps(panel.offsets[b]);
#pragma GCC unroll 16
  for (int r = 0; r < ROWS; ++r) {
    if constexpr (F == Format::kUint4) total[r] = _mm512_fmadd_ps(offset, _mm512_set1_ps(sums[r]), total[r]);
    const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(scales[r]));
    total[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(dots + r * kPanel)), both, total[r]);
  }
}

// The first ROWS rows of a group times blocks first..first+count-1 of a panel, which are open; total holds the sums of
// the blocks before. A block's tile product runs while the one before is added.
template <Format F, int ROWS>
inline void amx_tile(const OpenPanel& panel, const QuantizedRows& x, int64_t first_block, int64_t count,
                     __m512 (&total)[ROWS]) {
  alignas(64) int32_t dots[2][kRowGroup * kPanel];
  const int8_t* values = x.values + first_block * kGroupBlockBytes;
  const float* scales = x.scales + first_block * kRowGroup;
  const float* sums = x.sums + first_block * kRowGroup;
  multiply_block<0>(values, panel, 0, dots[0]);
  for (int64_t b = 0; b < count; b += 2) {
    if (b + 1 < count) multiply_block<1>(values + (b + 1) * kGroupBlockBytes, panel, b + 1, dots[1]);
    add_block<F, ROWS>(dots[0], panel, b, scales + b * kRowGroup, sums + b * kRowGroup, total);
    if (b + 1 == count) return;
    if (b + 2 < count) multiply_block<0>(values + (b + 2) * kGroupBlockBytes, panel, b + 2, dots[0]);
    add_block<F, ROWS>(dots[1], panel, b + 1, scales + (b + 1) * kRowGroup, sums + (b + 1) * kRowGroup, total);
  }
}

// Rows first_row..first_row+num_rows-1, at most ROWS, times an open stretch; out holds their sums where it isn't first.
template <Format F, int ROWS>
inline void amx_rows(const OpenPanel& panel, const QuantizedRows& x, int64_t first_block, int64_t count, int num_rows,
                     __mmask16 mask, bool is_first, float* out, int64_t stride) {
  __m512 total[ROWS];
#pragma GCC unroll 16
  for (int r = 0; r < ROWS; ++r) {
    total[r] = is_first || r >= num_rows ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask, out + r * stride);
  }
  amx_tile<F, ROWS>(panel, x, first_block, count, total);
#pragma GCC unroll 16
  for (int r = 0; r < ROWS; ++r) {
    if (r < num_rows) _mm512_mask_storeu_ps(out + r * stride, mask, total[r]);
  }
}

template <Format F>
void amx_panel(const PackedMatrix& w, const QuantizedRows& x, int num_rows, int panel, float* y, int64_t stride) {
  const int64_t blocks = num_blocks(w);
  const uint8_t* block = static_cast<const uint8_t*>(w.values) + panel * blocks * kBlockBytes<F>;
  const int rest = w.num_outputs - panel * kPanel;
  const __mmask16 mask = rest >= kPanel ? 0xffff : __mmask16((1u << rest) - 1);
  OpenPanel open;
  for (int64_t first = 0; first < blocks; first += kOpenBlocks) {
    const int64_t count = blocks - first < kOpenBlocks ? blocks - first : kOpenBlocks;
    for (int64_t b = 0; b < count; ++b, block += kBlockBytes<F>) open_block<F>(block, open, b);
    for (int row = 0; row < num_rows; row += kRowGroup) {
      const int64_t first_block = row / kRowGroup * blocks + first;
      float* out = y + row * stride + panel * kPanel;
      const int rows = num_rows - row < kRowGroup ? num_rows - row : kRowGroup;
      if (rows > kRowGroup / 2) {
        amx_rows<F, kRowGroup>(open, x, first_block, count, rows, mask, first == 0, out, stride);
      } else {
        amx_rows<F, kRowGroup / 2>(open, x, first_block, count, rows, mask, first == 0, out, stride);
      }
    }
  }
}

template <Format F>
void quantized_panels(const PackedMatrix& w, const QuantizedRows& x, int num_rows, int first, int last, float* y,
                      int64_t stride) {
  if (num_rows <= kFewRows) {
    for (int panel = first; panel < last; ++panel) vnni_panel<F>(w, x, num_rows, panel, y, stride);
    return;
  }
  const TileScope tiles(kBlockTiles);
  for (int panel = first; panel < last; ++panel) amx_panel<F>(w, x, num_rows, panel, y, stride);
}

}  // namespace
}  // namespace pellucid
