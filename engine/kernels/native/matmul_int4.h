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

  template <class Between>
  void open(int64_t tile, WeightTile& out, Between between) const {
    if (!HAS_OFFSETS || tile < blocks) return open_int4(data, blocks, tile, out, between);
    for (int quarter = 0; quarter < 4; ++quarter) between(quarter);
    open_offsets(data, blocks, (tile - blocks) * kBlock, out);
  }
  void open(int64_t tile, WeightTile& out) const {
    open(tile, out, [](int) {});
  }
};

// Memory that is wanted soon, a few lines at a time: the rest of a panel from `at` on, then what is read after it.
class PanelAhead {
 public:
  PanelAhead(const uint8_t* panel, int64_t bytes, const uint8_t* next, int64_t at, int64_t stop, int64_t turns)
      : panel_(panel), next_(next), bytes_(bytes), at_(at), stop_(stop) {
    a_turn_ = (stop - at + 64 * turns - 1) / (64 * turns) * 64;
  }

  void ask() {
    const int64_t stop = at_ + a_turn_ < stop_ ? at_ + a_turn_ : stop_;
    for (; at_ < stop; at_ += 64) __builtin_prefetch(at_ < bytes_ ? panel_ + at_ : next_ + (at_ - bytes_));
  }

 private:
  const uint8_t *panel_, *next_;
  const int64_t bytes_;
  int64_t at_, stop_, a_turn_;
};

constexpr int kTilesAhead = 2;  // a tile is opened so many products before it is loaded
constexpr int kFewGroups = 4;   // so many groups of rows meet a panel at once

// Few groups of rows. Of two panels one is opened while the other is multiplied: a sum waits for the one before it, and a row
// is loaded once for both.
template <bool HAS_OFFSETS, int PANELS, int GROUPS, class Sink>
void multiply_few(const PackedMatrix& w, const uint16_t* rows, int num_rows, int panel, const uint8_t* next,
                  const Sink& sink) {
  constexpr int kRoom = 4;
  constexpr int64_t kBytesAhead = 4608;
  alignas(64) WeightTile room[PANELS][kRoom];
  const Int4Panel<HAS_OFFSETS> one(w, panel), other(w, panel + PANELS - 1);
  const int64_t bytes = int4_panel_bytes(HAS_OFFSETS, one.blocks), tiles = one.tiles;
  const int64_t group = num_paired_blocks(int(one.blocks)) * kGroupBlockPairs;
  PanelAhead ahead(one.data, bytes, next, kBytesAhead, kBytesAhead + bytes, tiles);
  PanelAhead other_ahead(other.data, bytes, next + bytes, kBytesAhead, kBytesAhead + bytes, tiles);
  zero_sums<PANELS * GROUPS>();
  for (int64_t tile = 0; tile < kTilesAhead && tile < tiles; ++tile) {
    one.open(tile, room[0][tile % kRoom]);
    if constexpr (PANELS == 2) other.open(tile, room[1][tile % kRoom]);
  }
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const uint16_t* in = rows + tile * kGroupBlockPairs;
    // Between the quarters of opening, so that both go on where only a few instructions are looked ahead.
    auto first = [&](int quarter) {
      if (quarter == 0) {
        ahead.ask();
        tile_load<4>(room[0][tile % kRoom], 64);
      } else if (quarter == 1) {
        tile_load<6>(in, 64);
        if constexpr (GROUPS > 1) tile_load<7>(in + group, 64);
      } else if (quarter == 2) {
        tile_add_half_products<0, 4, 6>();
        if constexpr (GROUPS > 1) tile_add_half_products<1, 4, 7>();
      } else {
        if constexpr (GROUPS > 2) tile_load<6>(in + 2 * group, 64);
        if constexpr (GROUPS > 3) tile_load<7>(in + 3 * group, 64);
        if constexpr (GROUPS > 2) tile_add_half_products<2, 4, 6>();
        if constexpr (GROUPS > 3) tile_add_half_products<3, 4, 7>();
      }
    };
    auto second = [&](int quarter) {
      if (quarter == 0) {
        other_ahead.ask();
        tile_load<5>(room[PANELS - 1][tile % kRoom], 64);
      } else if (quarter == 2) {
        tile_add_half_products<GROUPS, 5, 6>();
        if constexpr (GROUPS > 1) tile_add_half_products<3, 5, 7>();
      }
    };
    if (tile + kTilesAhead < tiles) {
      one.open(tile + kTilesAhead, room[0][(tile + kTilesAhead) % kRoom], first);
      if constexpr (PANELS == 2) other.open(tile + kTilesAhead, room[1][(tile + kTilesAhead) % kRoom], second);
    } else {
      for (int quarter = 0; quarter < 4; ++quarter) first(quarter);
      if constexpr (PANELS == 2) second(0), second(2);
    }
  }
  put_groups<0, GROUPS>(sink, panel, 0, num_rows);
  if constexpr (PANELS == 2) put_groups<GROUPS, GROUPS>(sink, panel + 1, 0, num_rows);
}

constexpr int kOpenTiles = 64;  // of a panel
constexpr int kManyRows = 512;  // that one opening serves
constexpr int kRowsAtOnce = 2 * kRowGroup;

// A stretch of tiles opened for many rows.
template <int PANELS>
struct OpenTiles {
  alignas(64) WeightTile tiles[PANELS][kOpenTiles];
  alignas(64) SumTile sums[kManyRows / kRowsAtOnce][2 * PANELS];  // of panels with further stretches
};

// `count` opened tiles times GROUPS groups of rows, added to the accumulators.
template <int PANELS, int GROUPS, class Before>
inline void add_opened(const OpenTiles<PANELS>& open, const uint16_t* rows, int64_t group, int64_t count,
                       Before before) {
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
void multiply_many(const PackedMatrix& w, const uint16_t* rows, int first_row, int num_rows, int panel,
                   const uint8_t* next, const Sink& sink) {
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
      auto before = [&](int64_t t) {
        if (row == 0) return open_tile(t + kTilesAhead);
        ahead.ask();
      };
      const uint16_t* in = rows + (first_row + row) / kRowGroup * group + start * kGroupBlockPairs;
      const int rest = num_rows - row;
      auto add = [&]<int GROUPS>() {
        SumTile* const sums = open.sums[row / kRowsAtOnce];
        if (start == 0) zero_sums<PANELS * GROUPS>();
        if (start > 0) load_sums<PANELS * GROUPS>(sums);
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

// One panel of 4-bit weights times all rows, or two where both are there and their sums fit; returns how many.
template <bool HAS_OFFSETS, class Sink>
int multiply_int4(const PackedMatrix& w, const uint16_t* rows, int num_rows, int panel, int last, const Sink& sink) {
  const int64_t bytes = int4_panel_bytes(HAS_OFFSETS, num_blocks(w));
  const int groups = (num_rows + kRowGroup - 1) / kRowGroup;
  const bool many = groups > kFewGroups, two = (many || groups <= 2) && panel + 1 < last;
  const int after = panel + (two ? 2 : 1);
  const uint8_t* next = after < last || !w.next_panel ? static_cast<const uint8_t*>(w.values) + after * bytes
                                                      : static_cast<const uint8_t*>(w.next_panel);
  auto few = [&]<int PANELS, int GROUPS>() {
    multiply_few<HAS_OFFSETS, PANELS, GROUPS>(w, rows, num_rows, panel, next, sink);
  };
  if (many) {
    for (int row = 0; row < num_rows; row += kManyRows) {
      const int count = num_rows - row < kManyRows ? num_rows - row : kManyRows;
      if (two) multiply_many<HAS_OFFSETS, 2>(w, rows, row, count, panel, next, sink);
      if (!two) multiply_many<HAS_OFFSETS, 1>(w, rows, row, count, panel, next, sink);
    }
  } else if (groups == 4) {
    few.template operator()<1, 4>();
  } else if (groups == 3) {
    few.template operator()<1, 3>();
  } else if (groups == 2 && two) {
    few.template operator()<2, 2>();
  } else if (groups == 2) {
    few.template operator()<1, 2>();
  } else if (two) {
    few.template operator()<2, 1>();
  } else {
    few.template operator()<1, 1>();
  }
  return two ? 2 : 1;
}

}  // namespace
}  // namespace pellucid
