// Paged attention in tile registers, over a bfloat16 cache that lies in pairs; see attention_pairs.h.
//
// Sixteen rows share a tile, and two tiles the keys and values that are loaded.
//
// Loads stand together, and so do products: where somebody else uses the other half of a core, tile instructions that take
// turns wait for each other.
#pragma once
#include "attention_pairs.h"

#if defined(__AMX_BF16__)
#include <utility>

#include "amx_tiles.h"

namespace pellucid {
namespace {

constexpr int kTileDims = 32;                     // of queries and keys in a tile
constexpr int kMostTiles = kPairedRows / kPanel;  // of rows that are taken together
// A chunk of scores or weights has a row more than a tile, so that a row's parts fall on different lines of the cache.
constexpr int kChunkSize = (kPanel + 1) * kPanel;

// body<0>(), body<1>(), ...: the number of a tile register is part of its instruction.
template <int COUNT, typename Body>
inline void repeat(const Body& body) {
  [&]<int... I>(std::integer_sequence<int, I...>) {
    (body.template operator()<I>(), ...);
  }(std::make_integer_sequence<int, COUNT>{});
}

// The rows that are taken together, and their scratch.
struct TiledRows : PairedRows {
  int num_tiles;
  int room;           // for chunks: an even number, as they are scored and weighed in twos
  float* scores;      // [tile][room][17 rows][16 keys]
  uint16_t* weights;  // [tile][room][17 rows][16 keys]
  uint16_t* queries;  // [32 rows][head_dim]
  float* out;         // [32 rows][head_dim]

  explicit TiledRows(const PairedRows& some)
      : PairedRows(some), num_tiles((num_rows + kPanel - 1) / kPanel), room((num_chunks + 1) / 2 * 2), scores(scratch()) {
    weights = reinterpret_cast<uint16_t*>(scores + int64_t(num_tiles) * room * kChunkSize);
    queries = weights + int64_t(num_tiles) * room * kChunkSize;
    out = reinterpret_cast<float*>(queries + kMostTiles * kPanel * layout.head_dim);
  }

  int rows_of(int tile) const { return num_rows - tile * kPanel < kPanel ? num_rows - tile * kPanel : kPanel; }
  float* scores_of(int tile, int chunk) const { return scores + (int64_t(tile) * room + chunk) * kChunkSize; }
  uint16_t* weights_of(int tile, int chunk) const { return weights + (int64_t(tile) * room + chunk) * kChunkSize; }
};

// Registers 4 (and 5) times 6 and 7, into accumulators 0 and 1 (2 and 3); after_product<PLACE>() comes after each.
template <int TILES, typename Body>
inline void multiply_columns(const Body& after_product) {
  tile_add_half_products<0, 4, 6>();
  after_product.template operator()<0>();
  tile_add_half_products<1, 4, 7>();
  after_product.template operator()<1>();
  if constexpr (TILES == 2) {
    tile_add_half_products<2, 5, 6>();
    after_product.template operator()<2>();
    tile_add_half_products<3, 5, 7>();
    after_product.template operator()<3>();
  }
}

// Scores of the rows against a chunk of keys and the next. After the last chunk its keys stand in for the next one's.
template <int TILES>
inline void score_chunks(const TiledRows& tile, int chunk) {
  constexpr int kLines = kTileDims / 2 / TILES;
  const int head_dim = tile.layout.head_dim;
  const int64_t key_stride = int64_t(tile.layout.block_size) * 4;
  const uint8_t* keys = tile.keys(chunk);
  const uint8_t* next_keys = chunk + 1 < tile.num_chunks ? tile.keys(chunk + 1) : keys;
  const LinesAhead ahead[2] = {keys_ahead(tile, chunk + kAheadChunks), keys_ahead(tile, chunk + 1 + kAheadChunks)};
  repeat<2 * TILES>([&]<int SUM>() { tile_zero<SUM>(); });
  for (int d = 0; d < head_dim; d += kTileDims) {
    tile_load<4>(tile.queries + d, int64_t(head_dim) * 2);
    if constexpr (TILES == 2) tile_load<5>(tile.queries + kPanel * head_dim + d, int64_t(head_dim) * 2);
    tile_load<6>(keys + d / 2 * key_stride, key_stride);
    tile_load<7>(next_keys + d / 2 * key_stride, key_stride);
    multiply_columns<TILES>([&]<int PLACE>() { ahead[PLACE % 2].ask(d / 2 + PLACE / 2 * kLines, kLines); });
  }
  repeat<TILES>([&]<int TILE>() {
    tile_store<2 * TILE>(tile.scores_of(TILE, chunk), kPanel * 4);
    tile_store<2 * TILE + 1>(tile.scores_of(TILE, chunk + 1), kPanel * 4);
  });
}

// Queries of 64 dimensions stay in registers: a tile's in 2 and 3, another's in 4 and 5.
constexpr int kHeldDims = 2 * kTileDims;

inline void hold_queries(const TiledRows& tile) {
  tile_load<2>(tile.queries, kHeldDims * 2);
  tile_load<3>(tile.queries + kTileDims, kHeldDims * 2);
}

// The same scores of one tile of rows, whose queries are held.
inline void score_held(const TiledRows& tile, int chunk) {
  const int64_t key_stride = int64_t(tile.layout.block_size) * 4, half = kTileDims / 2 * key_stride;
  const uint8_t* keys = tile.keys(chunk);
  const uint8_t* next_keys = chunk + 1 < tile.num_chunks ? tile.keys(chunk + 1) : keys;
  const LinesAhead ahead = keys_ahead(tile, chunk + kAheadChunks), next = keys_ahead(tile, chunk + 1 + kAheadChunks);
  tile_zero<0>();
  tile_zero<1>();
  tile_load<4>(keys, key_stride);
  tile_load<5>(keys + half, key_stride);
  tile_load<6>(next_keys, key_stride);
  tile_load<7>(next_keys + half, key_stride);
  tile_add_half_products<0, 2, 4>();
  ahead.ask(0, 16);
  tile_add_half_products<1, 2, 6>();
  ahead.ask(16, 16);
  tile_add_half_products<0, 3, 5>();
  next.ask(0, 16);
  tile_add_half_products<1, 3, 7>();
  next.ask(16, 16);
  tile_store<0>(tile.scores_of(0, chunk), kPanel * 4);
  tile_store<1>(tile.scores_of(0, chunk + 1), kPanel * 4);
}

// Scores of two tiles of rows, whose queries are held, against a chunk of keys.
inline void score_two_held(const TiledRows& tile, int chunk) {
  const int64_t key_stride = int64_t(tile.layout.block_size) * 4;
  const uint8_t* keys = tile.keys(chunk);
  const LinesAhead ahead = keys_ahead(tile, chunk + kAheadChunks);
  tile_zero<0>();
  tile_zero<1>();
  tile_load<6>(keys, key_stride);
  tile_load<7>(keys + kTileDims / 2 * key_stride, key_stride);
  tile_add_half_products<0, 2, 6>();
  ahead.ask(0, 8);
  tile_add_half_products<1, 4, 6>();
  ahead.ask(8, 8);
  tile_add_half_products<0, 3, 7>();
  ahead.ask(16, 8);
  tile_add_half_products<1, 5, 7>();
  ahead.ask(24, 8);
  tile_store<0>(tile.scores_of(0, chunk), kPanel * 4);
  tile_store<1>(tile.scores_of(1, chunk), kPanel * 4);
}

template <int TILES>
inline void score_rows_in_tiles(const TiledRows& tile) {
  const uint8_t rows = uint8_t(tile.rows_of(0)), others = uint8_t(tile.rows_of(TILES - 1));
  if (tile.layout.head_dim != kHeldDims) {
    const TileScope registers({{rows, 64}, {rows, 64}, {others, 64}, {others, 64},
                               {rows, 64}, {others, 64}, {16, 64}, {16, 64}});
    for (int chunk = 0; chunk < tile.num_chunks; chunk += 2) score_chunks<TILES>(tile, chunk);
  } else if constexpr (TILES == 2) {
    const TileScope registers({{rows, 64}, {others, 64}, {rows, 64}, {rows, 64},
                               {others, 64}, {others, 64}, {16, 64}, {16, 64}});
    hold_queries(tile);
    tile_load<4>(tile.queries + kPanel * kHeldDims, kHeldDims * 2);
    tile_load<5>(tile.queries + kPanel * kHeldDims + kTileDims, kHeldDims * 2);
    for (int chunk = 0; chunk < tile.num_chunks; ++chunk) score_two_held(tile, chunk);
  } else {
    const TileScope registers({{rows, 64}, {rows, 64}, {rows, 64}, {rows, 64}, {16, 64}, {16, 64}, {16, 64}, {16, 64}});
    hold_queries(tile);
    for (int chunk = 0; chunk < tile.num_chunks; chunk += 2) score_held(tile, chunk);
  }
}

// Outputs of two tiles of rows in 32 dimensions from first_dim on.
inline void weigh_two(const TiledRows& tile, int first_dim) {
  const int head_dim = tile.layout.head_dim;
  const int64_t stride = int64_t(head_dim) * 4;
  const int lines = first_dim == 0 ? head_dim / 8 : 0;
  repeat<4>([&]<int SUM>() { tile_zero<SUM>(); });
  for (int chunk = 0; chunk < tile.num_chunks; ++chunk) {
    const LinesAhead ahead = values_ahead(tile, chunk + kAheadChunks);
    const uint8_t* values = tile.values(chunk) + first_dim * 4;
    tile_load<4>(tile.weights_of(0, chunk), kPanel * 2);
    tile_load<5>(tile.weights_of(1, chunk), kPanel * 2);
    tile_load<6>(values, stride);
    tile_load<7>(values + 64, stride);
    multiply_columns<2>([&]<int PLACE>() { ahead.ask(PLACE * lines, lines); });
  }
  repeat<2>([&]<int TILE>() {
    float* out = tile.out + TILE * kPanel * head_dim + first_dim;
    tile_store<2 * TILE>(out, stride);
    tile_store<2 * TILE + 1>(out + kPanel, stride);
  });
}

// Outputs of one tile of rows in DIM_TILES x 16 dimensions from first_dim on.
template <int DIM_TILES>
inline void weigh_one(const TiledRows& tile, int first_dim) {
  const int head_dim = tile.layout.head_dim;
  const int64_t stride = int64_t(head_dim) * 4;
  const int lines = first_dim == 0 ? head_dim / 2 / DIM_TILES : 0;
  repeat<DIM_TILES>([&]<int DIM>() { tile_zero<DIM>(); });
  for (int chunk = 0; chunk < tile.num_chunks; ++chunk) {
    const LinesAhead ahead = values_ahead(tile, chunk + kAheadChunks);
    const uint8_t* values = tile.values(chunk) + first_dim * 4;
    tile_load<4>(tile.weights_of(0, chunk), kPanel * 2);
    tile_load<5>(values, stride);
    tile_load<6>(values + 64, stride);
    if constexpr (DIM_TILES == 4) tile_load<7>(values + 128, stride);
    tile_add_half_products<0, 4, 5>();
    ahead.ask(0, lines);
    tile_add_half_products<1, 4, 6>();
    ahead.ask(lines, lines);
    if constexpr (DIM_TILES == 4) {
      tile_add_half_products<2, 4, 7>();
      ahead.ask(2 * lines, lines);
      tile_load<5>(values + 192, stride);
      tile_add_half_products<3, 4, 5>();
      ahead.ask(3 * lines, lines);
    }
  }
  repeat<DIM_TILES>([&]<int DIM>() { tile_store<DIM>(tile.out + first_dim + DIM * kPanel, stride); });
}

template <int TILES>
inline void weigh_values_in_tiles(const TiledRows& tile) {
  const int head_dim = tile.layout.head_dim;
  const uint8_t rows = uint8_t(tile.rows_of(0)), others = uint8_t(tile.rows_of(TILES - 1));
  int dim = 0;
  if constexpr (TILES == 2) {
    const TileScope registers({{rows, 64}, {rows, 64}, {others, 64}, {others, 64},
                               {rows, 32}, {others, 32}, {8, 64}, {8, 64}});
    for (; dim < head_dim; dim += 2 * kPanel) weigh_two(tile, dim);
  } else {
    const TileScope registers({{rows, 64}, {rows, 64}, {rows, 64}, {rows, 64}, {rows, 32}, {8, 64}, {8, 64}, {8, 64}});
    for (; dim + 4 * kPanel <= head_dim; dim += 4 * kPanel) weigh_one<4>(tile, dim);
    for (; dim < head_dim; dim += 2 * kPanel) weigh_one<2>(tile, dim);
  }
}

template <int TILES>
inline void attend_tiles(const TiledRows& tile) {
  const int head_dim = tile.layout.head_dim;
  round_queries(tile, tile.queries);
  score_rows_in_tiles<TILES>(tile);
  if (tile.is_last_partial()) copy_last_values(tile);
  float inverse[kMostTiles * kPanel];
  for (int row = 0; row < tile.num_rows; ++row) {
    const int place = row % kPanel * kPanel;
    inverse[row] = weigh_row(tile, row, tile.scores_of(row / kPanel, 0) + place,
                             tile.weights_of(row / kPanel, 0) + place, kChunkSize);
  }
  weigh_values_in_tiles<TILES>(tile);
  for (int row = 0; row < tile.num_rows; ++row) {
    const __m512 factor = _mm512_set1_ps(inverse[row]);
    float* out = tile.rows.out(tile.first_row + row);
    for (int d = 0; d < head_dim; d += kPanel) {
      _mm512_storeu_ps(out + d, _mm512_mul_ps(_mm512_loadu_ps(tile.out + row * head_dim + d), factor));
    }
  }
}

void attend_in_pairs(const AttentionTask& task, float* scratch) {
  attend_in_sets(task, scratch, kMostTiles * kPanel, [](const PairedRows& some) {
    const TiledRows tile(some);
    if (tile.num_tiles == 2) return attend_tiles<2>(tile);
    attend_tiles<1>(tile);
  });
}

}  // namespace
}  // namespace pellucid
#endif
