// Paged attention in tile registers, over a bfloat16 cache that lies in pairs (see kv_layout.h): queries and weights are
// rounded to bfloat16, products of them are summed in float32.
//
// Sixteen rows share a tile; keys go in chunks of sixteen, in order. A row's scores and outputs come out of the same
// sequence of tile products whatever rows it shares its tile with, and a chunk beyond its keys adds products with a weight
// of zero, so its bits depend on nothing but itself. Zero times a value that isn't finite would not be zero: see
// has_endless_values.
#pragma once
#include "attention_rows.h"
#include "kv_values.h"

#if defined(__AMX_BF16__)
#include <utility>

#include "amx_tiles.h"

namespace pellucid {
namespace {

constexpr int kTileDims = 32;  // of queries and keys in a tile
constexpr int kSideBySide = 4;  // tiles that accumulate: 0-3
constexpr int kAheadChunks = 3;
// A chunk of scores or weights has a row more than a tile, so that a row's parts fall on different lines of the cache.
constexpr int kChunkSize = (kPanel + 1) * kPanel;

// The operands of scores and those of outputs have shapes of their own.
constexpr int kQueryTile = 4, kKeyTile = 5, kWeightTile = 6, kValueTile = 7;

// body<0>(), body<1>(), ...: the number of a tile register is part of its instruction.
template <int COUNT, typename Body>
inline void repeat(const Body& body) {
  [&]<int... I>(std::integer_sequence<int, I...>) {
    (body.template operator()<I>(), ...);
  }(std::make_integer_sequence<int, COUNT>{});
}

// At most sixteen rows of a task, in its scratch.
struct TiledRows {
  const AttentionRows& rows;
  const Pieces& pieces;
  const KvLayout& layout;
  int first_row, num_rows, most_keys, num_chunks;
  float* scores;      // [chunk][17 rows][16 keys]
  uint16_t* weights;  // [chunk][17 rows][16 keys]
  uint16_t* queries;  // [16 rows][head_dim]
  float* out;         // [16 rows][head_dim]
  uint16_t* last;     // [8][head_dim][2]: values of the last chunk, zero where no key is

  TiledRows(const AttentionRows& rows, const Pieces& pieces, int first_row, int num_rows)
      : rows(rows), pieces(pieces), layout(rows.task.layout), first_row(first_row), num_rows(num_rows),
        most_keys(rows.num_keys(first_row + num_rows - 1)), num_chunks((most_keys + kPanel - 1) / kPanel),
        scores(rows.scores) {
    weights = reinterpret_cast<uint16_t*>(scores + int64_t(num_chunks) * kChunkSize);
    queries = weights + int64_t(num_chunks) * kChunkSize;
    out = reinterpret_cast<float*>(queries + kPanel * layout.head_dim);
    last = reinterpret_cast<uint16_t*>(out + kPanel * layout.head_dim);
  }

  bool is_last_partial() const { return most_keys % kPanel != 0; }
  const uint8_t* keys(int chunk) const {
    const int key = chunk * kPanel;
    return pieces.of(key / layout.block_size) + key % layout.block_size * 4;
  }
  const uint8_t* stored_values(int chunk) const {
    const int key = chunk * kPanel;
    return pieces.of(key / layout.block_size) + layout.values_offset() +
           int64_t(key % layout.block_size) * layout.head_dim * 2;
  }
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

// Scores of the rows against CHUNKS chunks of keys.
template <int CHUNKS>
inline void score_chunks(const TiledRows& tile, int first_chunk) {
  const int head_dim = tile.layout.head_dim;
  const int64_t key_stride = int64_t(tile.layout.block_size) * 4;
  const uint8_t* keys[CHUNKS];
  LinesAhead ahead[CHUNKS];
  for (int chunk = 0; chunk < CHUNKS; ++chunk) {
    keys[chunk] = tile.keys(first_chunk + chunk);
    ahead[chunk] = keys_ahead(tile, first_chunk + chunk + kAheadChunks);
  }
  repeat<CHUNKS>([&]<int CHUNK>() { tile_zero<CHUNK>(); });
  for (int d = 0; d < head_dim; d += kTileDims) {
    tile_load<kQueryTile>(tile.queries + d, int64_t(head_dim) * 2);
    repeat<CHUNKS>([&]<int CHUNK>() {
      tile_load<kKeyTile>(keys[CHUNK] + d / 2 * key_stride, key_stride);
      tile_add_half_products<CHUNK, kQueryTile, kKeyTile>();
      ahead[CHUNK].ask(d / 2, kTileDims / 2);
    });
  }
  repeat<CHUNKS>([&]<int CHUNK>() {
    tile_store<CHUNK>(tile.scores + int64_t(first_chunk + CHUNK) * kChunkSize, kPanel * 4);
  });
}

// 2^x for x <= 0, as exact as bfloat16 needs (3e-6 of itself); NaN stays NaN. A polynomial between -1/2 and 1/2.
inline __m512 power_of_two(__m512 x) {
  const __m512 bounded = _mm512_max_ps(_mm512_set1_ps(-200.0f), x);
  const __m512 whole = _mm512_roundscale_ps(bounded, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 rest = _mm512_sub_ps(bounded, whole);
  __m512 p = _mm512_set1_ps(9.582852944731712e-03f);
  p = _mm512_fmadd_ps(p, rest, _mm512_set1_ps(5.5906426161527634e-02f));
  p = _mm512_fmadd_ps(p, rest, _mm512_set1_ps(2.4024099111557007e-01f));
  p = _mm512_fmadd_ps(p, rest, _mm512_set1_ps(6.931241750717163e-01f));
  p = _mm512_fmadd_ps(p, rest, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, whole);
}

// Turns a row's scores into weights e^(scale * (s - max)) in bfloat16, zero beyond its keys; returns 1 / the sum of what
// they have become. Sixteen partial sums, then their sum in one order.
inline float weigh_row(const TiledRows& tile, int row) {
  const int num_keys = tile.rows.num_keys(tile.first_row + row), whole = num_keys / kPanel;
  const __mmask16 rest = __mmask16((1u << num_keys % kPanel) - 1);
  const float* scores = tile.scores + row * kPanel;
  uint16_t* weights = tile.weights + row * kPanel;
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
  __m512 sum = _mm512_setzero_ps();
  auto weigh = [&](int place, __mmask16 keep) {
    const __m512 power = power_of_two(_mm512_fmsub_ps(_mm512_loadu_ps(scores + place * kChunkSize), factors, shift));
    const __m256i halves = __m256i(_mm512_cvtneps_pbh(_mm512_maskz_mov_ps(keep, power)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(weights + place * kChunkSize), halves);
    sum = _mm512_add_ps(sum, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16)));
  };
  for (chunk = 0; chunk < whole; ++chunk) weigh(chunk, 0xffff);
  if (rest) weigh(chunk++, rest);
  for (; chunk < tile.num_chunks; ++chunk) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(weights + chunk * kChunkSize), _mm256_setzero_si256());
  }
  return 1.0f / _mm512_reduce_add_ps(sum);
}

// Outputs of the rows in DIM_TILES x 16 dimensions from first_dim on.
template <int DIM_TILES>
inline void weigh_dims(const TiledRows& tile, int first_dim) {
  const int head_dim = tile.layout.head_dim;
  repeat<DIM_TILES>([&]<int DIM>() { tile_zero<DIM>(); });
  for (int chunk = 0; chunk < tile.num_chunks; ++chunk) {
    const LinesAhead ahead = values_ahead(tile, chunk + kAheadChunks);
    const int lines = first_dim == 0 ? head_dim / 2 / DIM_TILES : 0;
    const uint8_t* values = tile.values(chunk) + first_dim * 4;
    tile_load<kWeightTile>(tile.weights + int64_t(chunk) * kChunkSize, kPanel * 2);
    repeat<DIM_TILES>([&]<int DIM>() {
      tile_load<kValueTile>(values + DIM * 64, int64_t(head_dim) * 4);
      tile_add_half_products<DIM, kWeightTile, kValueTile>();
      ahead.ask(DIM * lines, lines);
    });
  }
  repeat<DIM_TILES>([&]<int DIM>() {
    tile_store<DIM>(tile.out + first_dim + DIM * kPanel, int64_t(head_dim) * 4);
  });
}

// The rows of one tile; the tile registers have their shapes.
inline void attend_tile(const TiledRows& tile) {
  const int head_dim = tile.layout.head_dim;
  round_queries(tile);
  int chunk = 0;
  for (; chunk + kSideBySide <= tile.num_chunks; chunk += kSideBySide) score_chunks<kSideBySide>(tile, chunk);
  for (; chunk < tile.num_chunks; ++chunk) score_chunks<1>(tile, chunk);
  if (tile.is_last_partial()) copy_last_values(tile);
  float inverse[kPanel];
  for (int row = 0; row < tile.num_rows; ++row) inverse[row] = weigh_row(tile, row);
  int dim = 0;
  for (; dim + kSideBySide * kPanel <= head_dim; dim += kSideBySide * kPanel) weigh_dims<kSideBySide>(tile, dim);
  for (; dim < head_dim; dim += kPanel) weigh_dims<1>(tile, dim);
  for (int row = 0; row < tile.num_rows; ++row) {
    const __m512 factor = _mm512_set1_ps(inverse[row]);
    float* out = tile.rows.out(tile.first_row + row);
    for (int d = 0; d < head_dim; d += kPanel) {
      _mm512_storeu_ps(out + d, _mm512_mul_ps(_mm512_loadu_ps(tile.out + row * head_dim + d), factor));
    }
  }
}

inline void attend_rows(const AttentionRows& rows, const Pieces& pieces, int first_row, int num_rows) {
  const uint8_t shape_rows = uint8_t(num_rows);
  const TileShape shapes[kTileRegisters] = {{shape_rows, 64}, {shape_rows, 64}, {shape_rows, 64}, {shape_rows, 64},
                                            {shape_rows, 64}, {16, 64},         {shape_rows, 32}, {8, 64}};
  const TileScope registers(shapes);
  attend_tile(TiledRows(rows, pieces, first_row, num_rows));
}

void attend_in_tiles(const AttentionTask& task, float* scratch) {
  const AttentionRows rows{task, scratch, 0};
  const Pieces pieces(rows);
  for (int first = 0; first < rows.num_rows(); first += kPanel) {
    const int count = rows.num_rows() - first < kPanel ? rows.num_rows() - first : kPanel;
    // Values that some of the rows don't see would reach them as 0 times infinity: then each row goes by itself.
    if (has_endless_values(TiledRows(rows, pieces, first, count))) {
      for (int row = first; row < first + count; ++row) attend_rows(rows, pieces, row, 1);
    } else {
      attend_rows(rows, pieces, first, count);
    }
  }
}

}  // namespace
}  // namespace pellucid
#endif
