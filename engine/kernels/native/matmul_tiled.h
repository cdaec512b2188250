// Products of bfloat16 rows with 16-bit weights in the tile registers of AMX.
//
// A tile of weights is sixteen outputs times a block of 32 inputs, one of rows the same block of sixteen rows. A sum is
// one chain of tile products over all blocks in order, in float32 inside its accumulator, so that it doesn't depend on
// how many rows or panels are multiplied beside it. Weights in float16 are rounded to bfloat16 as they are read.
#pragma once
#include "amx_tiles.h"
#include "paired_rows.h"
#include "tile_outputs.h"

namespace pellucid {
namespace {

constexpr int kMostGroups = 4;         // groups of rows that one panel meets at a time
constexpr int kTilePrefetch = 4 << 10;  // bytes ahead of the tile that is read

typedef uint16_t WeightTile[kPanel][kBlock];

inline const WeightTile* tiles_of(const PackedMatrix& w, int panel) {
  return static_cast<const WeightTile*>(w.values) + int64_t(panel) * num_blocks(w);
}

// Loads a tile of weights, rounded in `room` if need be, and asks for a later one.
template <Format F, int TILE>
inline void load_weights_tile(const WeightTile* tile, WeightTile& room) {
  for (int line = 0; line < int(sizeof(WeightTile)); line += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(tile) + kTilePrefetch + line, _MM_HINT_T0);
  }
  if constexpr (F == Format::kFloat16Tiles) {
    for (int output = 0; output < kPanel; ++output) {
      const __m256i* halves = reinterpret_cast<const __m256i*>((*tile)[output]);
      const __m512 first = _mm512_cvtph_ps(_mm256_load_si256(halves));
      const __m512 second = _mm512_cvtph_ps(_mm256_load_si256(halves + 1));
      _mm512_store_si512(room[output], __m512i(_mm512_cvtne2ps_pbh(second, first)));
    }
    tile_load<TILE>(room, 64);
  } else {
    tile_load<TILE>(*tile, 64);
  }
}

// Accumulator PANEL * GROUPS + group += weights (register 4 + PANEL) times the group's rows (6 or 7).
template <int PANELS, int GROUPS, int GROUP = 0>
inline void multiply_groups(const uint16_t* rows, int64_t group_stride) {
  constexpr int kRows = 6 + GROUP % 2;
  tile_load<kRows>(rows + GROUP * group_stride, 64);
  tile_add_half_products<GROUP, 4, kRows>();
  if constexpr (PANELS == 2) tile_add_half_products<GROUPS + GROUP, 5, kRows>();
  if constexpr (GROUP + 1 < GROUPS) multiply_groups<PANELS, GROUPS, GROUP + 1>(rows, group_stride);
}

template <int COUNT>
inline void zero_sums() {
  tile_zero<COUNT - 1>();
  if constexpr (COUNT > 1) zero_sums<COUNT - 1>();
}

// Writes accumulators FIRST..FIRST+GROUPS-1, a panel's sums for as many groups.
template <int FIRST, int GROUPS, int GROUP = 0>
inline void write_groups(int num_rows, __mmask16 mask, float* y, int64_t stride) {
  alignas(64) float sums[kPanel * kRowGroup];
  tile_store<FIRST + GROUP>(sums, 64);
  write_outputs(sums, num_rows < kRowGroup ? num_rows : kRowGroup, mask, y, stride);
  if constexpr (GROUP + 1 < GROUPS) {
    write_groups<FIRST, GROUPS, GROUP + 1>(num_rows - kRowGroup, mask, y + kRowGroup * stride, stride);
  }
}

inline __mmask16 outputs_of(const PackedMatrix& w, int panel) {
  const int rest = w.num_outputs - panel * kPanel;
  return rest >= kPanel ? 0xffff : __mmask16((1u << rest) - 1);
}

// PANELS panels times GROUPS groups of rows, the last of which may be short.
template <Format F, int PANELS, int GROUPS>
void multiply_block(const PackedMatrix& w, const uint16_t* rows, int num_rows, int panel, float* y, int64_t stride) {
  alignas(64) WeightTile room[PANELS][2];  // in turn, so that a tile is rounded while the one before is loaded
  const int64_t blocks = num_blocks(w);
  const WeightTile* weights = tiles_of(w, panel);
  zero_sums<PANELS * GROUPS>();
  for (int64_t b = 0; b < blocks; ++b) {
    load_weights_tile<F, 4>(weights + b, room[0][b % 2]);
    if constexpr (PANELS == 2) load_weights_tile<F, 5>(weights + blocks + b, room[1][b % 2]);
    multiply_groups<PANELS, GROUPS>(rows + b * kGroupBlockPairs, blocks * kGroupBlockPairs);
  }
  write_groups<0, GROUPS>(num_rows, outputs_of(w, panel), y + panel * kPanel, stride);
  if constexpr (PANELS == 2) {
    write_groups<GROUPS, GROUPS>(num_rows, outputs_of(w, panel + 1), y + (panel + 1) * kPanel, stride);
  }
}

// One panel times all rows, or two where the rows are many and both are there; returns how many.
template <Format F>
int multiply_rows(const PackedMatrix& w, const uint16_t* pairs, int num_rows, int panel, int last, float* y,
                  int64_t stride) {
  const int64_t group = int64_t(num_blocks(w)) * kGroupBlockPairs;
  const bool both = num_rows > kRowGroup && panel + 1 < last;
  const int most = (both ? 2 : kMostGroups) * kRowGroup;
  for (int row = 0; row < num_rows; row += most) {
    const int rest = num_rows - row, groups = (rest + kRowGroup - 1) / kRowGroup;
    const uint16_t* rows = pairs + row / kRowGroup * group;
    float* out = y + row * stride;
    if (both && groups > 1) {
      multiply_block<F, 2, 2>(w, rows, rest, panel, out, stride);
    } else if (both) {
      multiply_block<F, 2, 1>(w, rows, rest, panel, out, stride);
    } else if (groups > 3) {
      multiply_block<F, 1, kMostGroups>(w, rows, rest, panel, out, stride);
    } else if (groups == 3) {
      multiply_block<F, 1, 3>(w, rows, rest, panel, out, stride);
    } else if (groups == 2) {
      multiply_block<F, 1, 2>(w, rows, rest, panel, out, stride);
    } else {
      multiply_block<F, 1, 1>(w, rows, rest, panel, out, stride);
    }
  }
  return both ? 2 : 1;
}

void matmul_tiled(const PackedMatrix& w, const uint16_t* pairs, int num_rows, int first, int last, float* y,
                  int64_t stride) {
  const TileScope tiles(kWholeTiles);
  const auto multiply =
      w.format == Format::kFloat16Tiles ? multiply_rows<Format::kFloat16Tiles> : multiply_rows<Format::kBFloat16Tiles>;
  for (int panel = first; panel < last;) panel += multiply(w, pairs, num_rows, panel, last, y, stride);
}

}  // namespace
}  // namespace pellucid
