// Paged attention in tile registers, over a bfloat16 cache that lies in pairs (see kv_layout.h): queries and weights are
// rounded to bfloat16, products of them are summed in float32.
//
// Sixteen rows share a tile, and two tiles the keys and values that are loaded; keys go in chunks of sixteen, in order. A
// row's scores and outputs come out of the same sequence of tile products whatever rows are beside it, and a chunk beyond
// its keys adds products with a weight of zero, so its bits depend on nothing but itself. Zero times a value that isn't
// finite would not be zero: see has_endless_values.
//
// Loads stand together, and so do products: where somebody else uses the other half of a core, tile instructions that take
// turns wait for each other.
#pragma once
#include "attention_rows.h"
#include "exponential.h"
#include "kv_values.h"

#if defined(__AMX_BF16__)
#include <utility>

#include "amx_tiles.h"

namespace pellucid {
namespace {

constexpr int kTileDims = 32;                // of queries and keys in a tile
constexpr int kMostTiles = kAttentionTiles;  // of rows that are taken together
constexpr int kAheadChunks = 4;
// A chunk of scores or weights has a row more than a tile, so that a row's parts fall on different lines of the cache.
constexpr int kChunkSize = (kPanel + 1) * kPanel;

// body<0>(), body<1>(), ...: the number of a tile register is part of its instruction.
template <int COUNT, typename Body>
inline void repeat(const Body& body) {
  [&]<int... I>(std::integer_sequence<int, I...>) {
    (body.template operator()<I>(), ...);
  }(std::make_integer_sequence<int, COUNT>{});
}

// The rows of a task that are taken together, in its scratch.
struct TiledRows {
  const AttentionRows& rows;
  const Pieces& pieces;
  const KvLayout& layout;
  int first_row, num_rows, num_tiles, most_keys, num_chunks;
  int room;           // for chunks: an even number, as they are scored and weighed in twos
  float* scores;      // [tile][room][17 rows][16 keys]
  uint16_t* weights;  // [tile][room][17 rows][16 keys]
  uint16_t* queries;  // [32 rows][head_dim]
  float* out;         // [32 rows][head_dim]
  uint16_t* last;     // [8][head_dim][2]: values of the last chunk, zero where no key is

  TiledRows(const AttentionRows& rows, const Pieces& pieces, int first_row, int num_rows)
      : rows(rows), pieces(pieces), layout(rows.task.layout), first_row(first_row), num_rows(num_rows),
        num_tiles((num_rows + kPanel - 1) / kPanel), most_keys(rows.num_keys(first_row + num_rows - 1)),
        num_chunks((most_keys + kPanel - 1) / kPanel), room((num_chunks + 1) / 2 * 2), scores(rows.scores) {
    weights = reinterpret_cast<uint16_t*>(scores + int64_t(num_tiles) * room * kChunkSize);
    queries = weights + int64_t(num_tiles) * room * kChunkSize;
    out = reinterpret_cast<float*>(queries + kMostTiles * kPanel * layout.head_dim);
    last = reinterpret_cast<uint16_t*>(out + kMostTiles * kPanel * layout.head_dim);
  }

  int rows_of(int tile) const { return num_rows - tile * kPanel < kPanel ? num_rows - tile * kPanel : kPanel; }
  float* scores_of(int tile, int chunk) const { return scores + (int64_t(tile) * room + chunk) * kChunkSize; }
  uint16_t* weights_of(int tile, int chunk) const { return weights + (int64_t(tile) * room + chunk) * kChunkSize; }
  const uint8_t* keys(int chunk) const {
    const int key = chunk * kPanel;
    return pieces.of(key / layout.block_size) + key % layout.block_size * 4;
  }
  const uint8_t* stored_values(int chunk) const {
    const int key = chunk * kPanel;
    return pieces.of(key / layout.block_size) + layout.values_offset() +
           int64_t(key % layout.block_size) * layout.head_dim * 2;
  }
  bool is_last_partial() const { return most_keys % kPanel != 0; }
  const uint8_t* values(int chunk) const {
    const bool is_copied = chunk == num_chunks - 1 && is_last_partial();
    return is_copied ? reinterpret_cast<const uint8_t*>(last) : stored_values(chunk);
  }
};

// Whether a value that the last rows see and the first don't is infinite or NaN.
inline bool has_endless_values(const TiledRows& tile) {
  const __m512i exponent = _mm512_set1_epi16(0x7f80);
  const int head_dim = tile.layout.head_dim;
  for (int key = tile.rows.num_keys(tile.first_row); key < tile.most_keys; ++key) {
    const uint8_t* pairs = tile.stored_values(key / kPanel) + int64_t(key % kPanel / 2) * head_dim * 4;
    const __mmask32 own = key % 2 ? 0xaaaaaaaa : 0x55555555;
    for (int d = 0; d < head_dim; d += kPanel) {
      const __m512i bits = _mm512_and_si512(_mm512_loadu_si512(pairs + 4 * d), exponent);
      if (_mm512_mask_cmpeq_epi16_mask(own, bits, exponent)) return true;
    }
  }
  return false;
}

inline void round_queries(const TiledRows& tile) {
  const int head_dim = tile.layout.head_dim;
  for (int row = 0; row < tile.num_rows; ++row) {
    const float* query = tile.rows.query(tile.first_row + row);
    for (int d = 0; d < head_dim; d += kTileDims) {
      const __m512bh halves = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(query + d + kPanel), _mm512_loadu_ps(query + d));
      _mm512_storeu_si512(tile.queries + row * head_dim + d, __m512i(halves));
    }
  }
}

// Memory that is wanted soon: a chunk's keys or values, head_dim / 2 lines `step` bytes apart. It is asked for a few lines
// at a time between tile products. Asked for at once, it would fill the buffers for lines that are on their way, and the
// next tile's load would wait for all of them.
struct LinesAhead {
  const uint8_t* first;
  int64_t step;

  void ask(int from, int count) const {
    for (int line = from; line < from + count; ++line) __builtin_prefetch(first + line * step);
  }
};

// The values of a chunk; past the last one, the first keys of the task that comes next, or nothing new.
inline LinesAhead values_ahead(const TiledRows& tile, int chunk) {
  const AttentionTask& task = tile.rows.task;
  const int past = chunk - tile.num_chunks, block_size = tile.layout.block_size;
  if (past < 0) return {tile.stored_values(chunk), 64};
  if (past >= task.next_num_keys / kPanel) return {tile.stored_values(tile.num_chunks - 1), 0};
  const int key = past * kPanel;
  const uint8_t* piece = task.next_pieces + task.next_block_table[key / block_size] * task.block_bytes;
  return {piece + key % block_size * 4, int64_t(block_size) * 4};
}

// The keys of a chunk; past the last one, the values that are wanted first.
inline LinesAhead keys_ahead(const TiledRows& tile, int chunk) {
  if (chunk >= tile.num_chunks) return values_ahead(tile, chunk - tile.num_chunks);
  return {tile.keys(chunk), int64_t(tile.layout.block_size) * 4};
}

inline void copy_last_values(const TiledRows& tile) {
  const int head_dim = tile.layout.head_dim, count = tile.most_keys % kPanel;
  const uint8_t* pairs = tile.stored_values(tile.num_chunks - 1);
  for (int key = 0; key < kPanel; key += 2) {
    const __mmask32 own = key + 1 < count ? 0xffffffff : key < count ? 0x55555555 : 0;
    for (int d = 0; d < head_dim; d += kPanel) {
      const int64_t at = (int64_t(key) / 2 * head_dim + d) * 2;
      _mm512_storeu_si512(tile.last + at, _mm512_maskz_loadu_epi16(own, pairs + at * 2));
    }
  }
}

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

// Turns a row's scores into weights e^(scale * (s - max)) in bfloat16, zero beyond its keys; returns 1 / the sum of what
// they have become. Sixteen partial sums, then their sum in one order.
inline float weigh_row(const TiledRows& tile, int row) {
  const int num_keys = tile.rows.num_keys(tile.first_row + row), whole = num_keys / kPanel;
  const __mmask16 rest = __mmask16((1u << num_keys % kPanel) - 1);
  const float* scores = tile.scores_of(row / kPanel, 0) + row % kPanel * kPanel;
  uint16_t* weights = tile.weights_of(row / kPanel, 0) + row % kPanel * kPanel;
  // A score that is NaN is no maximum; its weight makes the row NaN.
  const __m512 none = _mm512_set1_ps(-__builtin_inff());
  __m512 largest_of = none, other_largest_of = none;
  int chunk = 0;
  for (; chunk + 2 <= whole; chunk += 2) {
    largest_of = _mm512_max_ps(_mm512_loadu_ps(scores + chunk * kChunkSize), largest_of);
    other_largest_of = _mm512_max_ps(_mm512_loadu_ps(scores + (chunk + 1) * kChunkSize), other_largest_of);
  }
  if (chunk < whole) largest_of = _mm512_max_ps(_mm512_loadu_ps(scores + chunk * kChunkSize), largest_of);
  if (rest) largest_of = _mm512_max_ps(_mm512_mask_loadu_ps(none, rest, scores + whole * kChunkSize), largest_of);
  const float factor = tile.rows.task.scale * 1.44269504088896341f;
  const float largest = _mm512_reduce_max_ps(_mm512_max_ps(largest_of, other_largest_of));
  const __m512 factors = _mm512_set1_ps(factor), shift = _mm512_set1_ps(largest * factor);
  const __m512bh ones = __m512bh(_mm512_set1_epi32(0x3f803f80));
  const auto weigh = [&](int place, __mmask16 keep) {
    const __m512 scaled = _mm512_fmsub_ps(_mm512_loadu_ps(scores + place * kChunkSize), factors, shift);
    return _mm512_maskz_mov_ps(keep, power_of_two(scaled));
  };
  __m512 sum = _mm512_setzero_ps();
  const auto keep = [&](int place, __m512 first, __m512 second) {
    const __m512bh halves = _mm512_cvtne2ps_pbh(second, first);
    uint16_t* to = weights + place * kChunkSize;
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_castsi512_si256(__m512i(halves)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + kChunkSize), _mm512_extracti64x4_epi64(__m512i(halves), 1));
    sum = _mm512_dpbf16_ps(sum, halves, ones);
  };
  chunk = 0;
  for (; chunk + 2 <= whole; chunk += 2) keep(chunk, weigh(chunk, 0xffff), weigh(chunk + 1, 0xffff));
  if (num_keys % (2 * kPanel)) {
    const bool is_second = whole % 2;
    const __m512 first = weigh(chunk, is_second ? 0xffff : rest);
    keep(chunk, first, is_second ? weigh(chunk + 1, rest) : _mm512_setzero_ps());
    chunk += 2;
  }
  for (; chunk < tile.num_chunks; ++chunk) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(weights + chunk * kChunkSize), _mm256_setzero_si256());
  }
  return 1.0f / _mm512_reduce_add_ps(sum);
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
  round_queries(tile);
  score_rows_in_tiles<TILES>(tile);
  if (tile.is_last_partial()) copy_last_values(tile);
  float inverse[kMostTiles * kPanel];
  for (int row = 0; row < tile.num_rows; ++row) inverse[row] = weigh_row(tile, row);
  weigh_values_in_tiles<TILES>(tile);
  for (int row = 0; row < tile.num_rows; ++row) {
    const __m512 factor = _mm512_set1_ps(inverse[row]);
    float* out = tile.rows.out(tile.first_row + row);
    for (int d = 0; d < head_dim; d += kPanel) {
      _mm512_storeu_ps(out + d, _mm512_mul_ps(_mm512_loadu_ps(tile.out + row * head_dim + d), factor));
    }
  }
}

inline void attend_rows(const TiledRows& tile) {
  if (tile.num_tiles == 2) return attend_tiles<2>(tile);
  attend_tiles<1>(tile);
}

void attend_in_tiles(const AttentionTask& task, float* scratch) {
  const AttentionRows rows{task, scratch, 0};
  const Pieces pieces(rows);
  constexpr int kTogether = kMostTiles * kPanel;
  for (int first = 0; first < rows.num_rows(); first += kTogether) {
    const int count = rows.num_rows() - first < kTogether ? rows.num_rows() - first : kTogether;
    const TiledRows tile(rows, pieces, first, count);
    // Values that some of the rows don't see would reach them as 0 times infinity: then each row goes by itself.
    if (has_endless_values(tile)) {
      for (int row = first; row < first + count; ++row) attend_rows(TiledRows(rows, pieces, row, 1));
    } else {
      attend_rows(tile);
    }
  }
}

}  // namespace
}  // namespace pellucid
#endif
