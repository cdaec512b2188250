// The accumulators of products in tiles of bfloat16, and where their sums go.
#pragma once
#include "amx_tiles.h"
#include "paired_rows.h"
#include "tile_outputs.h"

namespace pellucid {
namespace {

typedef uint16_t WeightTile[kPanel][kBlock];
typedef float SumTile[kPanel * kRowGroup];

template <int COUNT>
inline void zero_sums() {
  tile_zero<COUNT - 1>();
  if constexpr (COUNT > 1) zero_sums<COUNT - 1>();
}

// Accumulators 0..COUNT-1 as they were when they were stored.
template <int COUNT>
inline void load_sums(const SumTile* sums) {
  tile_load<COUNT - 1>(sums[COUNT - 1], 64);
  if constexpr (COUNT > 1) load_sums<COUNT - 1>(sums);
}

template <int COUNT>
inline void store_sums(SumTile* sums) {
  tile_store<COUNT - 1>(sums[COUNT - 1], 64);
  if constexpr (COUNT > 1) store_sums<COUNT - 1>(sums);
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

// Where sums go: as rows of outputs, or as the tiles that they are.
struct RowSink {
  const PackedMatrix& w;
  float* y;  // [row][stride]
  int64_t stride;

  // A tile of `num_rows` rows from `row` on, at most a group of them.
  template <int TILE>
  void put(int panel, int row, int num_rows) const {
    alignas(64) float sums[kPanel * kRowGroup];
    tile_store<TILE>(sums, 64);
    const int rest = w.num_outputs - panel * kPanel;
    const __mmask16 mask = rest >= kPanel ? 0xffff : __mmask16((1u << rest) - 1);
    write_outputs(sums, num_rows < kRowGroup ? num_rows : kRowGroup, mask, y + row * stride + panel * kPanel, stride);
  }
};

struct TileSink {
  float* tiles;  // [group][panel][16 outputs][16 rows] from first_panel on
  int first_panel, num_panels;

  template <int TILE>
  void put(int panel, int row, int) const {
    tile_store<TILE>(tiles + (int64_t(row / kRowGroup) * num_panels + panel - first_panel) * kPanel * kRowGroup, 64);
  }
};

// Puts accumulators FIRST..FIRST+GROUPS-1, a panel's sums for as many groups.
template <int FIRST, int GROUPS, int GROUP = 0, class Sink>
inline void put_groups(const Sink& sink, int panel, int row, int num_rows) {
  sink.template put<FIRST + GROUP>(panel, row, num_rows);
  if constexpr (GROUP + 1 < GROUPS) {
    put_groups<FIRST, GROUPS, GROUP + 1>(sink, panel, row + kRowGroup, num_rows - kRowGroup);
  }
}

}  // namespace
}  // namespace pellucid
