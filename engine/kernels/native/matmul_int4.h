// Products of bfloat16 rows with 4-bit weights in the tile registers of AMX: tiles of weights are opened as they are met.
#pragma once
#include "int4_tiles.h"
#include "tile_sums.h"

namespace pellucid {
namespace {

// A panel of 4-bit weights, whose offsets are tiles behind the others.
template <bool HAS_OFFSETS>
struct Int4Panel {
  const uint8_t* data;
  int64_t blocks, tiles;

  Int4Panel(const PackedMatrix& w, int panel)
      : data(static_cast<const uint8_t*>(w.values) + panel * int4_panel_bytes(HAS_OFFSETS, num_blocks(w))),
        blocks(num_blocks(w)),
        tiles(HAS_OFFSETS ? num_paired_blocks(int(blocks)) : blocks) {}

  void open(int64_t tile, WeightTile& out) const {
    if (!HAS_OFFSETS || tile < blocks) return open_int4(data, blocks, tile, out);
    open_offsets(data, blocks, (tile - blocks) * kBlock, out);
  }
};

// Memory that is wanted soon, a few lines at a time: the rest of a panel from `at` on, then what is read after it.
class PanelAhead {
 public:
  PanelAhead(const uint8_t* panel, int64_t bytes, const uint8_t* next, int64_t at, int64_t stop, int64_t turns)
      : panel_(panel), next_(next), bytes_(bytes), at_(at), stop_(stop), a_turn_((stop - at + 64 * turns - 1) / (64 * turns) * 64) {}

  void ask() {
    const int64_t stop = at_ + a_turn_ < stop_ ? at_ + a_turn_ : stop_;
    for (; at_ < stop; at_ += 64) __builtin_prefetch(at_ < bytes_ ? panel_ + at_ : next_ + (at_ - bytes_));
  }

 private:
  const uint8_t *panel_, *next_;
  const int64_t bytes_;
  int64_t at_;
  const int64_t stop_, a_turn_;
};

constexpr int kTilesAhead = 2;  // a tile is opened so many products before it is loaded
constexpr int kFewGroups = 4;   // so many groups of rows meet a panel at once

// Few groups of rows.
template <bool HAS_OFFSETS, int GROUPS, class Sink>
void multiply_few(const PackedMatrix& w, const uint16_t* rows, int num_rows, int panel, const uint8_t* next, const Sink& sink) {
  constexpr int kRoom = 4;
  constexpr int64_t kBytesAhead = 4608;
  alignas(64) WeightTile room[kRoom];
  const Int4Panel<HAS_OFFSETS> weights(w, panel);
  const int64_t bytes = int4_panel_bytes(HAS_OFFSETS, weights.blocks), tiles = weights.tiles;
  const int64_t group = num_paired_blocks(int(weights.blocks)) * kGroupBlockPairs;
  PanelAhead ahead(weights.data, bytes, next, kBytesAhead, kBytesAhead + bytes, tiles);
  zero_sums<GROUPS>();
  for (int64_t tile = 0; tile < tiles + kTilesAhead; ++tile) {
    if (tile < tiles) {
      ahead.ask();
      weights.open(tile, room[tile % kRoom]);
    }
    if (tile < kTilesAhead) continue;
    tile_load<4>(room[(tile - kTilesAhead) % kRoom], 64);
    multiply_groups<1, GROUPS>(rows + (tile - kTilesAhead) * kGroupBlockPairs, group);
  }
  put_groups<0, GROUPS>(sink, panel, 0, num_rows);
}

constexpr int kOpenTiles = 64;      // of a panel
constexpr int kManyRows = 512;      // that one opening serves
constexpr int kRowsAtOnce = 2 * kRowGroup;

// A stretch of tiles opened for many rows.
template <int PANELS>
struct OpenTiles {
  alignas(64) WeightTile tiles[PANELS][kOpenTiles];
  alignas(64) SumTile sums[kManyRows / kRowsAtOnce][2 * PANELS];  // of panels with further stretches
};

// `count` opened tiles times GROUPS groups of rows, added to the accumulators.
template <int PANELS, int GROUPS, class Before>
inline void add_opened(const OpenTiles<PANELS>& open, const uint16_t* rows, int64_t group, int64_t count, Before before) {
  for (int64_t t = 0; t < count; ++t, rows += kGroupBlockPairs) {
    before(t);
    tile_load<4>(open.tiles[0][t], 64);
    if constexpr (PANELS == 2) tile_load<5>(open.tiles[1][t], 64);
    tile_load<6>(rows, 64);
    if constexpr (GROUPS == 2) tile_load<7>(rows + group, 64);
    tile_add_half_products<0, 4, 6>();
    if constexpr (GROUPS == 2) tile_add_half_products<1, 4, 7>();
    if constexpr (PANELS == 2) tile_add_half_products<GROUPS, 5, 6>();
    if constexpr (PANELS == 2 && GROUPS == 2) tile_add_half_products<3, 5, 7>();
  }
}

// Many rows: a stretch of tiles is opened once for all of them, while the first ones are multiplied.
template <bool HAS_OFFSETS, int PANELS, class Sink>
void multiply_many(const PackedMatrix& w, const uint16_t* rows, int first_row, int num_rows, int panel, const uint8_t* next,
                   const Sink& sink) {
  OpenTiles<PANELS> open;
  const Int4Panel<HAS_OFFSETS> one(w, panel), other(w, panel + PANELS - 1);
  const int64_t group = num_paired_blocks(int(one.blocks)) * kGroupBlockPairs;
  const int64_t bytes = PANELS * int4_panel_bytes(HAS_OFFSETS, one.blocks);
  PanelAhead ahead(next, bytes, next, 0, bytes, 2 * one.tiles);
  const int64_t stretches = (one.tiles + kOpenTiles - 1) / kOpenTiles, most = (one.tiles + stretches - 1) / stretches;
  for (int64_t start = 0; start < one.tiles; start += most) {
    const int64_t left = one.tiles - start, count = left < most ? left : most;
    auto open_tile = [&](int64_t t) {
      if (t >= count) return;
      one.open(start + t, open.tiles[0][t]);
      if constexpr (PANELS == 2) other.open(start + t, open.tiles[1][t]);
    };
    for (int64_t t = 0; t < kTilesAhead; ++t) open_tile(t);
    for (int row = 0; row < num_rows; row += kRowsAtOnce) {
      auto before = [&](int64_t t) { row == 0 ? open_tile(t + kTilesAhead) : ahead.ask(); };
      const uint16_t* in = rows + (first_row + row) / kRowGroup * group + start * kGroupBlockPairs;
      const int rest = num_rows - row;
      auto add = [&]<int GROUPS>() {
        SumTile* const sums = open.sums[row / kRowsAtOnce];
        start == 0 ? zero_sums<PANELS * GROUPS>() : load_sums<PANELS * GROUPS>(sums);
        add_opened<PANELS, GROUPS>(open, in, group, count, before);
        if (start + count < one.tiles) return store_sums<PANELS * GROUPS>(sums);
        put_groups<0, GROUPS>(sink, panel, first_row + row, rest);
        if constexpr (PANELS == 2) put_groups<GROUPS, GROUPS>(sink, panel + 1, first_row + row, rest);
      };
      if (rest > kRowGroup) {
        add.template operator()<2>();
      } else {
        add.template operator()<1>();
      }
    }
  }
}

// One panel of 4-bit weights times all rows, or two where the rows are many and both are there; returns how many.
template <bool HAS_OFFSETS, class Sink>
int multiply_int4(const PackedMatrix& w, const uint16_t* rows, int num_rows, int panel, int last, const Sink& sink) {
  const int64_t bytes = int4_panel_bytes(HAS_OFFSETS, num_blocks(w));
  const bool many = num_rows > kFewGroups * kRowGroup, two = many && panel + 1 < last;
  const int after = panel + (two ? 2 : 1);
  const uint8_t* next = after < last || !w.next_panel ? static_cast<const uint8_t*>(w.values) + after * bytes
                                                      : static_cast<const uint8_t*>(w.next_panel);
  if (many) {
    for (int row = 0; row < num_rows; row += kManyRows) {
      const int count = num_rows - row < kManyRows ? num_rows - row : kManyRows;
      two ? multiply_many<HAS_OFFSETS, 2>(w, rows, row, count, panel, next, sink)
          : multiply_many<HAS_OFFSETS, 1>(w, rows, row, count, panel, next, sink);
    }
  } else if (num_rows > 3 * kRowGroup) {
    multiply_few<HAS_OFFSETS, 4>(w, rows, num_rows, panel, next, sink);
  } else if (num_rows > 2 * kRowGroup) {
    multiply_few<HAS_OFFSETS, 3>(w, rows, num_rows, panel, next, sink);
  } else if (num_rows > kRowGroup) {
    multiply_few<HAS_OFFSETS, 2>(w, rows, num_rows, panel, next, sink);
  } else {
    multiply_few<HAS_OFFSETS, 1>(w, rows, num_rows, panel, next, sink);
  }
  return two ? 2 : 1;
}

}  // namespace
}  // namespace pellucid
