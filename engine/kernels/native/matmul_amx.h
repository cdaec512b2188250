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

// Accumulators 0 and 1, activations 4 and 5, weights 6 and 7, for the two places of steps. A step is a block, or half of one
// where each half has a scale.
template <Format F>
constexpr TileShape kStepTiles[kTileRegisters] = {
    {16, 64}, {16, 64}, {}, {},
    {16, kBlock / num_scales(F)}, {16, kBlock / num_scales(F)}, {8 / num_scales(F), 64}, {8 / num_scales(F), 64}};

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

// The dot products of an open stretch of a panel with group after group of rows, step after step. Steps are made in places 0 and
// 1 by turns: loaded and multiplied three steps before they are added, stored one step before. Tile instructions that wait
// for one another take a third longer where somebody else uses the other half of a core.
template <Format F>
class StepProducts {
 public:
  StepProducts(const OpenPanel<F>& panel, const int8_t* rows, int64_t group_bytes, int num_steps, int num_groups)
      : panel_(panel), rows_(rows), group_bytes_(group_bytes), num_steps_(num_steps), groups_left_(num_groups) {
    load<0>();
    multiply<0>();
    load<1>();
    multiply<1>();
    if (is_left()) load<0>();
    store<0>();
    if (is_left()) multiply<0>();
  }

  bool is_left() const { return groups_left_ > 0; }

  template <int PLACE>
  void load() {
    // An odd number of steps has one more, whose products nobody wants.
    const unsigned step = step_ < num_steps_ ? step_ : 0, b = step / num_scales(F), half = step % num_scales(F);
    tile_load<4 + PLACE>(rows_ + b * kGroupBlockBytes + half * (kBlock / 2), kBlock);
    tile_load<6 + PLACE>(panel_.values[b][4 * half], 64);
  }

  template <int PLACE>
  void multiply() {
    tile_zero<PLACE>();
    tile_add_products<PLACE, 4 + PLACE, 6 + PLACE>();
    if (++step_ >= num_steps_ && step_ % 2 == 0) step_ = 0, rows_ += group_bytes_, --groups_left_;
  }

  template <int PLACE>
  void store() {
    tile_store<PLACE>(dots_[PLACE], 64);
  }

  // What a step with place 1 does to those behind it.
  void skip() {
    if (is_left()) load<0>();
    store<0>();
    if (is_left()) multiply<0>();
  }

  template <int PLACE>
  const int32_t* dots() const {
    return dots_[PLACE];
  }

 private:
  const OpenPanel<F>& panel_;
  const int8_t* rows_;
  const int64_t group_bytes_;
  const unsigned num_steps_;
  unsigned step_ = 0;
  int groups_left_;
  alignas(64) int32_t dots_[2][kRowGroup * kPanel];
};

// Adds the dot products of a step to the totals of rows [FROM, TO); scales and sums are the rows' of block 0.
template <Format F, int FROM, int TO, int ROWS>
inline void add_step(const int32_t* dots, const OpenPanel<F>& panel, int64_t step, const float* scales,
                     const float* sums, __m512 (&total)[ROWS]) {
  const int64_t at = step / num_scales(F) * kRowGroup;
  const __m512 scale = _mm512_load_ps(panel.scales[step]);
  if constexpr (bias_of(F) == 0) {
    const __m512 offset = _mm512_load_ps(panel.offsets[step]);
#pragma GCC unroll 16
    for (int r = FROM; r < TO; ++r) add_product(total[r], offset, sums[at + r]);
  }
#pragma GCC unroll 16
  for (int r = FROM; r < TO; ++r) {
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

// Adds the products of a step while those of steps behind it are made.
template <Format F, int PLACE, int ROWS>
inline void amx_step(StepProducts<F>& products, const OpenPanel<F>& panel, int64_t step, MemoryAhead& ahead,
                     const float* scales, const float* sums, __m512 (&total)[ROWS]) {
  if (products.is_left()) products.template load<1 - PLACE>();
  products.template store<1 - PLACE>();
  ahead.ask();
  add_step<F, 0, ROWS / 2>(products.template dots<PLACE>(), panel, step, scales, sums, total);
  if (products.is_left()) products.template multiply<1 - PLACE>();
  add_step<F, ROWS / 2, ROWS>(products.template dots<PLACE>(), panel, step, scales, sums, total);
}

// At most ROWS rows times an open stretch of `count` blocks; first_block is the rows' first one, and out holds their sums of
// the stretches before, where it isn't the first.
template <Format F, int ROWS>
inline void amx_rows(StepProducts<F>& products, const OpenPanel<F>& panel, const QuantizedRows& x, int64_t first_block,
                     int64_t count, int num_rows, MemoryAhead ahead, __mmask16 mask, bool is_first, float* out,
                     int64_t stride) {
  __m512 total[ROWS];
#pragma GCC unroll 16
  for (int r = 0; r < ROWS; ++r) {
    total[r] = is_first || r >= num_rows ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask, out + r * stride);
  }
  const float* scales = x.scales + first_block * kRowGroup;
  const float* sums = x.sums + first_block * kRowGroup;
  const int64_t steps = count * num_scales(F);
  for (int64_t step = 0; step < steps; step += 2) {
    amx_step<F, 0>(products, panel, step, ahead, scales, sums, total);
    if (step + 1 == steps) {
      products.skip();
      break;
    }
    amx_step<F, 1>(products, panel, step + 1, ahead, scales, sums, total);
  }
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
    StepProducts<F> products(open, x.values + first * kGroupBlockBytes, blocks * kGroupBlockBytes,
                             int(count * num_scales(F)), (num_rows + kRowGroup - 1) / kRowGroup);
    for (int row = 0; row < num_rows; row += kRowGroup) {
      const int64_t first_block = row / kRowGroup * blocks + first;
      float* out = y + row * stride + panel * kPanel;
      const int rows = num_rows - row < kRowGroup ? num_rows - row : kRowGroup;
      MemoryAhead ahead{nullptr, 0, out, stride, rows};
      if (row == 0) ahead.weights = stretch_of<F>(next, w, first), ahead.lines_a_step = lines_a_step<F>(w);
      if (rows > kRowGroup / 2) {
        amx_rows<F, kRowGroup>(products, open, x, first_block, count, rows, ahead, mask, first == 0, out, stride);
      } else {
        amx_rows<F, kRowGroup / 2>(products, open, x, first_block, count, rows, ahead, mask, first == 0, out, stride);
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
