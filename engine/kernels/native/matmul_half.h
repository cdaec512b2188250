// Products of bfloat16 rows with 16-bit weights in the tile registers of AMX.
#pragma once
#include "tile_sums.h"

namespace pellucid {
namespace {

constexpr int kMostGroups = 4;          // groups of rows that one panel meets at a time
constexpr int kTilePrefetch = 4 << 10;  // bytes ahead of the tile that is read

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

// PANELS panels times GROUPS groups of rows, the last of which may be short.
template <Format F, int PANELS, int GROUPS, class Sink>
void multiply_block(const PackedMatrix& w, const uint16_t* rows, int row, int num_rows, int panel, const Sink& sink) {
  alignas(64) WeightTile room[PANELS][2];  // in turn, so that a tile is rounded while the one before is loaded
  const int64_t blocks = num_blocks(w);
  const WeightTile* weights = tiles_of(w, panel);
  zero_sums<PANELS * GROUPS>();
  for (int64_t b = 0; b < blocks; ++b) {
    load_weights_tile<F, 4>(weights + b, room[0][b % 2]);
    if constexpr (PANELS == 2) load_weights_tile<F, 5>(weights + blocks + b, room[1][b % 2]);
    multiply_groups<PANELS, GROUPS>(rows + b * kGroupBlockPairs, num_paired_blocks(int(blocks)) * kGroupBlockPairs);
  }
  put_groups<0, GROUPS>(sink, panel, row, num_rows);
  if constexpr (PANELS == 2) put_groups<GROUPS, GROUPS>(sink, panel + 1, row, num_rows);
}

// One panel times all rows, or two where the rows are many and both are there; returns how many.
template <Format F, class Sink>
int multiply_rows(const PackedMatrix& w, const uint16_t* pairs, int num_rows, int panel, int last, const Sink& sink) {
  const int64_t group = int64_t(num_paired_blocks(num_blocks(w))) * kGroupBlockPairs;
  const bool both = num_rows > kRowGroup && panel + 1 < last;
  const int most = (both ? 2 : kMostGroups) * kRowGroup;
  for (int row = 0; row < num_rows; row += most) {
    const int rest = num_rows - row, groups = (rest + kRowGroup - 1) / kRowGroup;
    const uint16_t* rows = pairs + row / kRowGroup * group;
    if (both && groups > 1) {
      multiply_block<F, 2, 2>(w, rows, row, rest, panel, sink);
    } else if (both) {
      multiply_block<F, 2, 1>(w, rows, row, rest, panel, sink);
    } else if (groups > 3) {
      multiply_block<F, 1, kMostGroups>(w, rows, row, rest, panel, sink);
    } else if (groups == 3) {
      multiply_block<F, 1, 3>(w, rows, row, rest, panel, sink);
    } else if (groups == 2) {
      multiply_block<F, 1, 2>(w, rows, row, rest, panel, sink);
    } else {
      multiply_block<F, 1, 1>(w, rows, row, rest, panel, sink);
    }
  }
  return both ? 2 : 1;
}

}  // namespace
}  // namespace pellucid
