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

constexpr int kFewRows = 10;     // up to here dot products of single rows are faster: 10.8 against 11.3 ms a step of 10
constexpr int kOpenBlocks = 64;  // blocks opened at a time

// Accumulators 0 and 1, activations 4, weights 6: a step is a block, or half of one where each half has a scale.
template <Format F>
constexpr TileShape kStepTiles[kTileRegisters] = {
    {16, 64}, {16, 64}, {}, {}, {16, kBlock / num_scales(F)}, {}, {8 / num_scales(F), 64}, {}};

// A stretch of a panel: w = scale * q + offset, or scale * q in a format with a bias, which is subtracted here.
template <Format F>
struct OpenPanel {
  alignas(64) int8_t values[kOpenBlocks][8][16][4];
  float scales[kOpenBlocks * num_scales(F)][kPanel];
  float offsets[bias_of(F) ? 1 : kOpenBlocks][kPanel];
};

template <Format F, int QUAD>
inline void open_quad(const uint8_t* values, int8_t (&out)[8][16][4]) {
  __m512i integers = integers_of<F, QUAD>(values);
  if constexpr (bias_of(F) != 0) integers = _mm512_sub_epi8(integers, _mm512_set1_epi8(char(bias_of(F))));
  _mm512_store_si512(out[QUAD], integers);
}

template <Format F>
inline void open_block(const BlockView& block, OpenPanel<F>& out, int64_t b) {
  open_quad<F, 0>(block.values, out.values[b]);
  open_quad<F, 4>(block.values, out.values[b]);
  open_quad<F, 1>(block.values, out.values[b]);
  open_quad<F, 5>(block.values, out.values[b]);
  open_quad<F, 2>(block.values, out.values[b]);
  open_quad<F, 6>(block.values, out.values[b]);
  open_quad<F, 3>(block.values, out.values[b]);
  open_quad<F, 7>(block.values, out.values[b]);
  for (int half = 0; half < num_scales(F); ++half) {
    _mm512_store_ps(out.scales[b * num_scales(F) + half], scales_of<F>(block, half));
  }
  if constexpr (bias_of(F) == 0) _mm512_store_ps(out.offsets[b], offsets_of<F>(block));
}

// total += a * b in place. Written out: the compiler's own choice of registers copies a total now and then, and copies take
// turns with the arithmetic.
inline void add_product(__m512& total, __m512 a, __m512 b) { asm("vfmadd231ps %2, %1, %0" : "+v"(total) : "v"(a), "v"(b)); }
inline void add_product(__m512& total, __m512 a, const float& b) {
  asm("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(total) : "v"(a), "m"(b));
}

// The dot products of one step, into dots [16 rows][16 outputs]; values are the rows' of block 0.
template <Format F, int TILE>
inline void multiply_step(const int8_t* values, const OpenPanel<F>& panel, int64_t step, int32_t* dots) {
  const int64_t b = step / num_scales(F), half = step % num_scales(F);
  tile_zero<TILE>();
  tile_load<4>(values + b * kGroupBlockBytes + half * (kBlock / 2), kBlock);
  tile_load<6>(panel.values[b][4 * half], 64);
  tile_add_products<TILE, 4, 6>();
  tile_store<TILE>(dots, 64);
}

// Adds the dot products of a step to the rows' totals; scales and sums are the rows' of block 0.
template <Format F, int ROWS>
inline void add_step(const int32_t* dots, const OpenPanel<F>& panel, int64_t step, const float* scales,
                     const float* sums, __m512 (&total)[ROWS]) {
  const int64_t at = step / num_scales(F) * kRowGroup;
  const __m512 scale = _mm512_load_ps(panel.scales[step]);
  if constexpr (bias_of(F) == 0) {
    const __m512 offset = _mm512_load_ps(panel.offsets[step]);
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; ++r) add_product(total[r], offset, sums[at + r]);
  }
#pragma GCC unroll 16
  for (int r = 0; r < ROWS; ++r) {
    const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(scales[at + r]));
    add_product(total[r], _mm512_cvtepi32_ps(_mm512_load_si512(dots + r * kPanel)), both);
  }
}

// Memory that is wanted soon, asked for a few lines at a time between steps: all at once they would fill the buffers for
// lines on their way, and tile loads would wait for them.
struct MemoryAhead {
  const char* weights = nullptr;  // that are opened next
  int lines_a_step = 0;
  float* out = nullptr;  // of the next row that is written
  int64_t stride = 0;
  int num_rows = 0;

  void ask() {
    for (int line = 0; line < lines_a_step; ++line, weights += 64) _mm_prefetch(weights, _MM_HINT_T0);
    if (num_rows > 0) {
      __builtin_prefetch(out, 1);
      out += stride;
      --num_rows;
    }
  }
};

// The first ROWS rows of a group times `count` blocks of a panel, which are open; first_block is the rows' first one, and
// total holds the sums of the blocks before. A step's tile product runs while the one before is added.
template <Format F, int ROWS>
inline void amx_tile(const OpenPanel<F>& panel, const QuantizedRows& x, int64_t first_block, int64_t count,
                     MemoryAhead ahead, __m512 (&total)[ROWS]) {
  alignas(64) int32_t dots[2][kRowGroup * kPanel];
  const int8_t* values = x.values + first_block * kGroupBlockBytes;
  const float* scales = x.scales + first_block * kRowGroup;
  const float* sums = x.sums + first_block * kRowGroup;
  const int64_t steps = count * num_scales(F);
  multiply_step<F, 0>(values, panel, 0, dots[0]);
  for (int64_t step = 0; step < steps; step += 2) {
    if (step + 1 < steps) multiply_step<F, 1>(values, panel, step + 1, dots[1]);
    ahead.ask();
    add_step<F, ROWS>(dots[0], panel, step, scales, sums, total);
    if (step + 1 == steps) return;
    if (step + 2 < steps) multiply_step<F, 0>(values, panel, step + 2, dots[0]);
    ahead.ask();
    add_step<F, ROWS>(dots[1], panel, step + 1, scales, sums, total);
  }
}

// At most ROWS rows times an open stretch; out holds their sums of the stretches before, where it isn't the first.
template <Format F, int ROWS>
inline void amx_rows(const OpenPanel<F>& panel, const QuantizedRows& x, int64_t first_block, int64_t count,
                     int num_rows, MemoryAhead ahead, __mmask16 mask, bool is_first, float* out, int64_t stride) {
  __m512 total[ROWS];
#pragma GCC unroll 16
  for (int r = 0; r < ROWS; ++r) {
    total[r] = is_first || r >= num_rows ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask, out + r * stride);
  }
  amx_tile<F, ROWS>(panel, x, first_block, count, ahead, total);
#pragma GCC unroll 16
  for (int r = 0; r < ROWS; ++r) {
    if (r < num_rows) _mm512_mask_storeu_ps(out + r * stride, mask, total[r]);
  }
}

// Where the blocks of a panel begin from first_block on.
template <Format F>
inline const char* stretch_of(const void* panel, const PackedMatrix& w, int64_t first_block) {
  return static_cast<const char*>(panel) + panel_bytes(F, num_blocks(w)) * first_block / num_blocks(w);
}

// Lines of weights for a step.
template <Format F>
inline int lines_a_step(const PackedMatrix& w) {
  const int64_t steps = int64_t(num_blocks(w)) * num_scales(F);
  return int((panel_bytes(F, num_blocks(w)) + 64 * steps - 1) / (64 * steps));
}

template <Format F>
void amx_panel(const PackedMatrix& w, const QuantizedRows& x, int num_rows, int panel, const void* next, float* y,
               int64_t stride) {
  const int64_t blocks = num_blocks(w);
  const int rest = w.num_outputs - panel * kPanel;
  const __mmask16 mask = rest >= kPanel ? 0xffff : __mmask16((1u << rest) - 1);
  OpenPanel<F> open;
  for (int64_t first = 0; first < blocks; first += kOpenBlocks) {
    const int64_t count = blocks - first < kOpenBlocks ? blocks - first : kOpenBlocks;
    for (int64_t b = 0; b < count; ++b) open_block<F>(block_of<F>(w, panel, first + b), open, b);
    for (int row = 0; row < num_rows; row += kRowGroup) {
      const int64_t first_block = row / kRowGroup * blocks + first;
      float* out = y + row * stride + panel * kPanel;
      const int rows = num_rows - row < kRowGroup ? num_rows - row : kRowGroup;
      MemoryAhead ahead{nullptr, 0, out, stride, rows};
      if (row == 0) ahead.weights = stretch_of<F>(next, w, first), ahead.lines_a_step = lines_a_step<F>(w);
      if (rows > kRowGroup / 2) {
        amx_rows<F, kRowGroup>(open, x, first_block, count, rows, ahead, mask, first == 0, out, stride);
      } else {
        amx_rows<F, kRowGroup / 2>(open, x, first_block, count, rows, ahead, mask, first == 0, out, stride);
      }
    }
  }
}

template <Format F>
void quantized_panels(const PackedMatrix& w, const QuantizedRows& x, int num_rows, int first, int last, float* y,
                      int64_t stride) {
  if (num_rows <= kFewRows) return vnni_panels<F>(w, x, num_rows, first, last, y, stride);
  const TileScope tiles(kStepTiles<F>);
  for (int panel = first; panel < last; ++panel) {
    amx_panel<F>(w, x, num_rows, panel, panel_after<F>(w, panel, last), y, stride);
  }
}

}  // namespace
}  // namespace pellucid
