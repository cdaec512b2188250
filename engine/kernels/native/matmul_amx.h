// Products of bfloat16 rows with panels in the tile registers of AMX.
//
// A tile of weights is sixteen outputs times a block of 32 inputs, opened from the panel as it is needed; a tile of rows
// is the same block of sixteen rows. A sum is one chain of tile products over all blocks in order, in float32 inside its
// accumulator, so that it doesn't depend on how many rows or panels are multiplied beside it.
#pragma once
#include "amx_tiles.h"
#include "bfloat16_rows.h"
#include "blocks_bfloat16.h"
#include "tile_outputs.h"

namespace pellucid {
namespace {

constexpr int kMostGroups = 4;           // groups of rows that a tile of weights meets when it is opened in passing
constexpr int kOpenBlocks = 64;          // longest panel that is kept open for any number of groups
constexpr int kPassingTiles = 4;         // a ring: a tile is opened while the ones before are multiplied
constexpr int kAhead = 1;                // blocks between opening and multiplying
constexpr int kPrefetchedBytes = 2560;   // ahead of what is opened

template <Format F>
inline const uint8_t* float_block(const PackedMatrix& w, int panel, int64_t b) {
  return static_cast<const uint8_t*>(w.values) + (panel * int64_t(num_blocks(w)) + b) * int64_t(sizeof(WeightTile));
}

inline void prefetch(const uint8_t* from, int bytes) {
  for (int line = 0; line < bytes; line += 64) _mm_prefetch(reinterpret_cast<const char*>(from + line), _MM_HINT_T0);
}

// Makes a block a tile in `room`.
template <Format F>
inline void open_tile(const PackedMatrix& w, int panel, int64_t b, WeightTile& room) {
  if constexpr (F == Format::kFloat16) {
    const uint8_t* values = float_block<F>(w, panel, b);
    prefetch(values + kPrefetchedBytes, sizeof(WeightTile));
    open_halves(values, room);
  } else if constexpr (F != Format::kBFloat16) {
    const BlockView block = block_of<F>(w, panel, b);
    prefetch(block.values + kPrefetchedBytes, kHeaderBytes + block_value_bytes(F));
    open_block<F>(block, room);
  }
}

// Where a block's tile is: in `room`, or in a matrix in bfloat16 in the panel itself.
template <Format F>
inline const void* tile_of(const PackedMatrix& w, int panel, int64_t b, const WeightTile& room) {
  if constexpr (F == Format::kBFloat16) {
    const uint8_t* values = float_block<F>(w, panel, b);
    prefetch(values + kPrefetchedBytes, sizeof(WeightTile));
    return values;
  }
  return room;
}

// Accumulators PANEL * GROUPS + group += weights (register 4 + PANEL) times the group's rows (6 or 7).
template <int PANELS, int GROUPS, int GROUP>
inline void multiply_group(const uint16_t* rows, int64_t group_stride) {
  constexpr int kRows = 6 + GROUP % 2;
  tile_load<kRows>(rows + GROUP * group_stride, 64);
  tile_add_products<GROUP, 4, kRows>();
  if constexpr (PANELS == 2) tile_add_products<GROUPS + GROUP, 5, kRows>();
  if constexpr (GROUP + 1 < GROUPS) multiply_group<PANELS, GROUPS, GROUP + 1>(rows, group_stride);
}

// Writes the sums of accumulator 0.. of a panel and the groups from GROUP on.
template <int GROUPS, int FIRST, int GROUP = 0>
inline void write_groups(int num_rows, __mmask16 mask, float* y, int64_t stride) {
  alignas(64) float sums[kPanel * kRowGroup];
  tile_store<FIRST + GROUP>(sums, 64);
  write_outputs(sums, num_rows < kRowGroup ? num_rows : kRowGroup, mask, y, stride);
  if constexpr (GROUP + 1 < GROUPS) {
    write_groups<GROUPS, FIRST, GROUP + 1>(num_rows - kRowGroup, mask, y + kRowGroup * stride, stride);
  }
}

template <int COUNT>
inline void zero_sums() {
  tile_zero<COUNT - 1>();
  if constexpr (COUNT > 1) zero_sums<COUNT - 1>();
}

inline __mmask16 outputs_of(const PackedMatrix& w, int panel) {
  const int rest = w.num_outputs - panel * kPanel;
  return rest >= kPanel ? 0xffff : __mmask16((1u << rest) - 1);
}

// One panel times GROUPS groups, whose last may be short, opened in passing.
template <Format F, int GROUPS>
void multiply_in_passing(const PackedMatrix& w, int panel, const uint16_t* rows, int num_rows, float* y,
                         int64_t stride) {
  alignas(64) WeightTile ring[kPassingTiles];
  const int64_t blocks = num_blocks(w);
  zero_sums<GROUPS>();
  for (int64_t b = 0; b < kAhead && b < blocks; ++b) open_tile<F>(w, panel, b, ring[b % kPassingTiles]);
  for (int64_t b = 0; b < blocks; ++b) {
    if (b + kAhead < blocks) open_tile<F>(w, panel, b + kAhead, ring[(b + kAhead) % kPassingTiles]);
    tile_load<4>(tile_of<F>(w, panel, b, ring[b % kPassingTiles]), 64);
    multiply_group<1, GROUPS, 0>(rows + b * kGroupBlock, blocks * kGroupBlock);
  }
  write_groups<GROUPS, 0>(num_rows, outputs_of(w, panel), y + panel * kPanel, stride);
}

// At most kMostGroups groups.
template <Format F>
void multiply_few(const PackedMatrix& w, int panel, const uint16_t* rows, int num_rows, float* y, int64_t stride) {
  switch ((num_rows + kRowGroup - 1) / kRowGroup) {
    case 1: return multiply_in_passing<F, 1>(w, panel, rows, num_rows, y, stride);
    case 2: return multiply_in_passing<F, 2>(w, panel, rows, num_rows, y, stride);
    case 3: return multiply_in_passing<F, 3>(w, panel, rows, num_rows, y, stride);
    default: return multiply_in_passing<F, kMostGroups>(w, panel, rows, num_rows, y, stride);
  }
}

// Two panels, both open, times GROUPS groups.
template <Format F, int GROUPS>
void multiply_open(const PackedMatrix& w, int panel, const WeightTile (&open)[2][kOpenBlocks], const uint16_t* rows,
                   int num_rows, float* y, int64_t stride) {
  const int64_t blocks = num_blocks(w);
  zero_sums<2 * GROUPS>();
  for (int64_t b = 0; b < blocks; ++b) {
    tile_load<4>(tile_of<F>(w, panel, b, open[0][b]), 64);
    tile_load<5>(tile_of<F>(w, panel + 1, b, open[1][b]), 64);
    multiply_group<2, GROUPS, 0>(rows + b * kGroupBlock, blocks * kGroupBlock);
  }
  write_groups<GROUPS, 0>(num_rows, outputs_of(w, panel), y + panel * kPanel, stride);
  write_groups<GROUPS, GROUPS>(num_rows, outputs_of(w, panel + 1), y + (panel + 1) * kPanel, stride);
}

// Two panels times any number of rows.
template <Format F>
void multiply_many(const PackedMatrix& w, int panel, const uint16_t* rows, int num_rows, float* y, int64_t stride) {
  alignas(64) WeightTile open[2][kOpenBlocks];
  const int64_t blocks = num_blocks(w);
  for (int p = 0; p < 2; ++p) {
    for (int64_t b = 0; b < blocks; ++b) open_tile<F>(w, panel + p, b, open[p][b]);
  }
  for (int row = 0; row < num_rows; row += 2 * kRowGroup) {
    const uint16_t* group = rows + row / kRowGroup * blocks * kGroupBlock;
    if (num_rows - row > kRowGroup) {
      multiply_open<F, 2>(w, panel, open, group, num_rows - row, y + row * stride, stride);
    } else {
      multiply_open<F, 1>(w, panel, open, group, num_rows - row, y + row * stride, stride);
    }
  }
}

template <Format F>
void rounded_panels(const PackedMatrix& w, const RoundedRows& x, int num_rows, int first, int last, float* y,
                    int64_t stride) {
  constexpr int kFew = kMostGroups * kRowGroup;
  const TileScope tiles(kWholeTiles);
  int panel = first;
  if (num_rows > kFew && num_blocks(w) <= kOpenBlocks) {
    for (; panel + 1 < last; panel += 2) multiply_many<F>(w, panel, x.pairs, num_rows, y, stride);
  }
  for (; panel < last; ++panel) {
    for (int row = 0; row < num_rows; row += kFew) {
      const uint16_t* group = x.pairs + row / kRowGroup * int64_t(num_blocks(w)) * kGroupBlock;
      multiply_few<F>(w, panel, group, num_rows - row, y + row * stride, stride);
    }
  }
}

}  // namespace
}  // namespace pellucid
