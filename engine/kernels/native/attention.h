// Paged attention of a few neighbouring queries over one KV head. A row is a (query, head) pair; rows share the reads
// of keys and values. A row's scores add dimensions in ascending order, its output adds keys in ascending order, whatever
// rows it shares a tile with.
//
// Few rows (a decode) read the cache directly; many (a prompt) have each chunk of a rounded cache made floats once, in
// the fastest cache, and read that. Both see the same values in the same order, so a row can't tell.
#pragma once
#include "attention_dots.h"
#include "attention_rows.h"
#include "attention_tiles.h"
#include "exponential.h"
#include "kv_values.h"

namespace pellucid {
namespace {

constexpr int kChunk = kAttentionChunk;  // keys
constexpr int kAheadBlocks = 4;          // blocks scatter: the hardware's own prefetcher starts anew in each

// Scores of ROWS rows against VECTORS x 16 keys. keys[v]: 16 keys' values of the first dimension, the next dimension's
// `step` bytes on. scales: of the keys, or null. ahead: memory wanted soon, laid out like keys, or null.
template <KvFormat F, int ROWS, int VECTORS>
inline void score_tile(const AttentionRows& rows, int row, const uint8_t* const* keys, int64_t step,
                       const float* const* scales, const uint8_t* const* ahead, int first_key) {
  constexpr int kEvery = 4 / (F == KvFormat::kFloat32 ? 4 : F == KvFormat::kInt8 ? 1 : 2);  // dimensions in a line
  const float* query[ROWS];
  Lanes total[ROWS][VECTORS];
#pragma GCC unroll 4
  for (int r = 0; r < ROWS; ++r) {
    query[r] = rows.query(row + r);
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v) total[r][v] = zeros();
  }
  for (int d = 0; d < rows.task.layout.head_dim; ++d) {
    if (ahead && d % kEvery == 0) {
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; ++v) __builtin_prefetch(ahead[v] + d * step);
    }
    Lanes key[VECTORS];
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v) key[v] = load_values<F>(keys[v] + d * step);
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; ++r) {
      const Lanes q = broadcast(query[r][d]);
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; ++v) total[r][v] = multiply_add(q, key[v], total[r][v]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < ROWS; ++r) {
    float* out = rows.score(row + r) + first_key;
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v) {
      store(out + v * kPanel, scales ? multiply(total[r][v], load(scales[v])) : total[r][v]);
    }
  }
}

template <KvFormat F, int VECTORS>
inline void score_rows(const AttentionRows& rows, const uint8_t* const* keys, int64_t step, const float* const* scales,
                       const uint8_t* const* ahead, int first_key) {
  const int num_rows = rows.num_rows();
  int row = 0;
  for (; row + kTileRows <= num_rows; row += kTileRows) {
    score_tile<F, kTileRows, VECTORS>(rows, row, keys, step, scales, row ? nullptr : ahead, first_key);
  }
  if (row) ahead = nullptr;
  if constexpr (kTileRows > 3) {
    if (num_rows - row == 3) score_tile<F, 3, VECTORS>(rows, row, keys, step, scales, ahead, first_key);
  }
  if constexpr (kTileRows > 2) {
    if (num_rows - row == 2) score_tile<F, 2, VECTORS>(rows, row, keys, step, scales, ahead, first_key);
  }
  if constexpr (kTileRows > 1) {
    if (num_rows - row == 1) score_tile<F, 1, VECTORS>(rows, row, keys, step, scales, ahead, first_key);
  }
}

// Scores of all rows against VECTORS x 16 keys from first_key on.
template <KvFormat F, int VECTORS>
inline void score_vectors(const AttentionRows& rows, const Pieces& pieces, int first_key, float* unpacked) {
  const KvLayout& layout = rows.task.layout;
  const int block_size = layout.block_size, size = kv_value_bytes(F), num_vectors = (rows.most_keys() + 15) / kPanel;
  const uint8_t* keys[VECTORS];
  const uint8_t* ahead[VECTORS];
  const float* scales[VECTORS];
  for (int v = 0; v < VECTORS; ++v) {
    const int key = first_key + v * kPanel, next = key / kPanel + VECTORS;
    const uint8_t* piece = pieces.of(key / block_size);
    keys[v] = piece + key % block_size * size;
    scales[v] = reinterpret_cast<const float*>(piece + layout.scales_offset()) + key % block_size;
    // The keys of the next tile, or the first values.
    ahead[v] = next < num_vectors ? pieces.of(next * kPanel / block_size) + next * kPanel % block_size * size
                                  : pieces.ahead(v) + layout.values_offset();
  }
  const float* const* used_scales = F == KvFormat::kInt8 ? scales : nullptr;
  if (F == KvFormat::kFloat32 || rows.num_rows() <= kTileRows) {
    return score_rows<F, VECTORS>(rows, keys, int64_t(block_size) * size, used_scales, ahead, first_key);
  }
  const uint8_t* unpacked_keys[VECTORS];
  for (int v = 0; v < VECTORS; ++v) {
    unpacked_keys[v] = reinterpret_cast<const uint8_t*>(unpacked + v * kPanel);
    for (int d = 0; d < layout.head_dim; ++d) {
      __builtin_prefetch(ahead[v] + int64_t(d) * block_size * size);
      store(unpacked + (d * VECTORS + v) * kPanel, load_values<F>(keys[v] + int64_t(d) * block_size * size));
    }
  }
  const int64_t step = VECTORS * kPanel * int64_t(sizeof(float));
  score_rows<KvFormat::kFloat32, VECTORS>(rows, unpacked_keys, step, used_scales, nullptr, first_key);
}

// Blocks that don't divide into vectors of 16 keys.
template <KvFormat F>
inline void score_row_plain(const AttentionRows& rows, const Pieces& pieces, int row) {
  const KvLayout& layout = rows.task.layout;
  const float* query = rows.query(row);
  for (int key = 0; key < rows.num_keys(row); ++key) {
    const uint8_t* piece = pieces.of(key / layout.block_size);
    const int slot = key % layout.block_size;
    float total = 0.0f;
    for (int d = 0; d < layout.head_dim; ++d) {
      total = multiply_add(query[d], load_value<F>(piece, int64_t(d) * layout.block_size + slot), total);
    }
    if (F == KvFormat::kInt8) total *= load_value<KvFormat::kFloat32>(piece + layout.scales_offset(), slot);
    rows.score(row)[key] = total;
  }
}

// Turns scores into e^(scale * (s - max)); returns 1 / their sum. Sixteen partial sums, then their sum in order.
inline float exponentiate(float* s, int num_keys, float scale) {
  const int whole = num_keys / kPanel * kPanel, rest = num_keys - whole;
  // The last vector is filled up with a score that is there anyway, and its surplus taken off again.
  float tail[kPanel], lanes[kPanel];
  for (int lane = 0; lane < kPanel; ++lane) tail[lane] = lane < rest ? s[whole + lane] : s[0];
  Lanes largest_of = load(tail);
  for (int t = 0; t < whole; t += kPanel) largest_of = larger(load(s + t), largest_of);
  store(lanes, largest_of);
  float largest = lanes[0];
  for (int lane = 1; lane < kPanel; ++lane) largest = lanes[lane] > largest ? lanes[lane] : largest;
  auto power = [&](Lanes x) {
#pragma GCC unroll 4
    for (int i = 0; i < kParts; ++i) x.part[i] = exp_of((x.part[i] - largest) * scale);
    return x;
  };
  Lanes partial = zeros();
  for (int t = 0; t < whole; t += kPanel) {
    const Lanes p = power(load(s + t));
    store(s + t, p);
    partial = add(partial, p);
  }
  store(tail, power(load(tail)));
  store(lanes, partial);
  for (int lane = 0; lane < rest; ++lane) {
    s[whole + lane] = tail[lane];
    lanes[lane] += tail[lane];
  }
  float sum = 0.0f;
  for (int lane = 0; lane < kPanel; ++lane) sum += lanes[lane];
  return 1.0f / sum;
}

// Folds the values' scales into the weights.
inline void scale_weights(const AttentionRows& rows, const Pieces& pieces, int row) {
  const KvLayout& layout = rows.task.layout;
  float* weights = rows.score(row);
  for (int key = 0; key < rows.num_keys(row);) {
    const uint8_t* piece = pieces.of(key / layout.block_size);
    const float* scales = reinterpret_cast<const float*>(piece + layout.scales_offset()) + layout.block_size;
    const int stop = key + layout.block_size < rows.num_keys(row) ? key + layout.block_size : rows.num_keys(row);
    for (int slot = 0; key < stop; ++key, ++slot) weights[key] *= scales[slot];
  }
}

// Where the values of a run of keys lie: key k at of(k / block_size) + k % block_size rows of head_dim.
struct PagedValues {
  const Pieces& pieces;
  int64_t offset;
  int block_size;
  const uint8_t* of(int block) const { return pieces.of(block) + offset; }
  const uint8_t* ahead(int block) const { return pieces.ahead(block + kAheadBlocks) + offset; }
};
struct UnpackedValues {  // of one chunk
  const float* chunk;
  int block_size;
  const uint8_t* of(int) const { return reinterpret_cast<const uint8_t*>(chunk); }
  const uint8_t* ahead(int) const { return nullptr; }
};

// out[row][16 * vector ...] += weights x values over keys first..last-1, for ROWS rows and VECTORS x 16 dimensions.
template <KvFormat F, int ROWS, int VECTORS, typename Values>
inline void weigh_tile(const AttentionRows& rows, const Values& values, int row, int vector, int first, int last,
                       bool is_first) {
  const int64_t stride = int64_t(rows.task.layout.head_dim) * kv_value_bytes(F);
  const int64_t column = int64_t(vector) * kPanel * kv_value_bytes(F);
  const float* weights[ROWS];
  Lanes total[ROWS][VECTORS];
#pragma GCC unroll 4
  for (int r = 0; r < ROWS; ++r) {
    weights[r] = rows.score(row + r);
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v) total[r][v] = load(rows.out(row + r) + (vector + v) * kPanel);
  }
  for (int key = first; key < last;) {
    const int block = key / values.block_size, offset = key % values.block_size;
    const int rest = values.block_size - offset, stop = key + rest < last ? key + rest : last;
    const uint8_t* value = values.of(block) + offset * stride + column;
    const uint8_t* ahead = is_first ? values.ahead(block) : nullptr;
    if (ahead) ahead += offset * stride + column;
    for (; key < stop; ++key, value += stride) {
      if (ahead) {
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v += 4 / kv_value_bytes(F)) {
          __builtin_prefetch(ahead + v * kPanel * kv_value_bytes(F));
        }
        ahead += stride;
      }
      Lanes lanes[VECTORS];
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; ++v) lanes[v] = load_values<F>(value + v * kPanel * kv_value_bytes(F));
#pragma GCC unroll 4
      for (int r = 0; r < ROWS; ++r) {
        const Lanes p = broadcast(weights[r][key]);
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; ++v) total[r][v] = multiply_add(p, lanes[v], total[r][v]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v) store(rows.out(row + r) + (vector + v) * kPanel, total[r][v]);
  }
}

template <KvFormat F, int ROWS, typename Values>
inline void weigh_tiles(const AttentionRows& rows, const Values& values, int row, int first, int last, bool is_first) {
  const int head_dim = rows.task.layout.head_dim, num_vectors = head_dim / kPanel;
  int vector = 0;
  for (; vector + kTileVectors <= num_vectors; vector += kTileVectors) {
    weigh_tile<F, ROWS, kTileVectors>(rows, values, row, vector, first, last, is_first);
  }
  for (; vector < num_vectors; ++vector) {
    weigh_tile<F, ROWS, 1>(rows, values, row, vector, first, last, is_first);
  }
  for (int r = row; r < row + ROWS; ++r) {
    for (int d = num_vectors * kPanel; d < head_dim; ++d) {
      float total = rows.out(r)[d];
      for (int key = first; key < last; ++key) {
        const int64_t index = int64_t(key % values.block_size) * head_dim + d;
        total = multiply_add(rows.score(r)[key], load_value<F>(values.of(key / values.block_size), index), total);
      }
      rows.out(r)[d] = total;
    }
  }
}

// Rows first_row..last_row-1 over keys first..last-1.
template <KvFormat F, typename Values>
inline void weigh_rows(const AttentionRows& rows, const Values& values, int first_row, int last_row, int first,
                       int last) {
  int row = first_row;
  for (; row + kTileRows <= last_row; row += kTileRows) {
    weigh_tiles<F, kTileRows>(rows, values, row, first, last, row == first_row);
  }
  if constexpr (kTileRows > 3) {
    if (last_row - row == 3) weigh_tiles<F, 3>(rows, values, row, first, last, row == first_row);
  }
  if constexpr (kTileRows > 2) {
    if (last_row - row == 2) weigh_tiles<F, 2>(rows, values, row, first, last, row == first_row);
  }
  if constexpr (kTileRows > 1) {
    if (last_row - row == 1) weigh_tiles<F, 1>(rows, values, row, first, last, row == first_row);
  }
}

template <KvFormat F>
inline void unpack_values(const AttentionRows& rows, const PagedValues& values, int first, int last, float* out) {
  const int head_dim = rows.task.layout.head_dim;
  const int64_t stride = int64_t(head_dim) * kv_value_bytes(F);
  for (int key = first; key < last; ++key, out += head_dim) {
    const int block = key / values.block_size, offset = key % values.block_size;
    const uint8_t* value = values.of(block) + offset * stride;
    const uint8_t* ahead = values.ahead(block) + offset * stride;
    for (int64_t byte = 0; byte < stride; byte += 64) __builtin_prefetch(ahead + byte);
    int d = 0;
    for (; d + kPanel <= head_dim; d += kPanel) store(out + d, load_values<F>(value + d * kv_value_bytes(F)));
    for (; d < head_dim; ++d) out[d] = load_value<F>(value, d);
  }
}

// Adds the weighted values of keys first..last-1; those beyond first_num_keys belong to the later queries only.
template <KvFormat F, typename Values>
inline void weigh_chunk(const AttentionRows& rows, const Values& values, int first, int last) {
  const int num_rows = rows.num_rows(), group = rows.task.group, shared = rows.task.first_num_keys;
  if (first < shared) weigh_rows<F>(rows, values, 0, num_rows, first, last < shared ? last : shared);
  const int from = first < shared ? shared : first;
  for (int row = group; row < num_rows; row += group) {
    const int to = last < rows.num_keys(row) ? last : rows.num_keys(row);
    if (from < to) weigh_rows<F>(rows, values, row, row + group, from, to);
  }
}

template <KvFormat F>
void attend(const AttentionTask& task, float* scratch) {
  const int64_t score_stride = attention_score_stride(task);
  const AttentionRows rows{task, scratch, score_stride};
  const Pieces pieces(rows);
  const KvLayout& layout = task.layout;
  const int num_rows = rows.num_rows(), most_keys = rows.most_keys();
  float* unpacked = scratch + num_rows * score_stride;
  if (layout.block_size % kPanel == 0) {
    int key = 0;
    for (; key + kTileVectors * kPanel <= score_stride; key += kTileVectors * kPanel) {
      score_vectors<F, kTileVectors>(rows, pieces, key, unpacked);
    }
    for (; key < score_stride; key += kPanel) score_vectors<F, 1>(rows, pieces, key, unpacked);
  } else {
    for (int row = 0; row < num_rows; ++row) score_row_plain<F>(rows, pieces, row);
  }
  float inverse[kMaxAttentionRows];
  for (int row = 0; row < num_rows; ++row) {
    inverse[row] = exponentiate(rows.score(row), rows.num_keys(row), task.scale);
    if (F == KvFormat::kInt8) scale_weights(rows, pieces, row);
    std::memset(rows.out(row), 0, size_t(layout.head_dim) * sizeof(float));
  }
  const PagedValues values{pieces, layout.values_offset(), layout.block_size};
  const bool is_tile = num_rows <= kTileRows;
  for (int first = 0, last; first < most_keys; first = last) {
    last = is_tile || first + kChunk > most_keys ? most_keys : first + kChunk;
    if (is_tile || F == KvFormat::kFloat32) {
      weigh_chunk<F>(rows, values, first, last);
    } else {
      unpack_values<F>(rows, values, first, last, unpacked);
      weigh_chunk<KvFormat::kFloat32>(rows, UnpackedValues{unpacked, kChunk}, first, last);
    }
  }
  for (int row = 0; row < num_rows; ++row) {
    float* out = rows.out(row);
    for (int d = 0; d < layout.head_dim; ++d) out[d] *= inverse[row];
  }
}

#if defined(__AVX512BF16__)
constexpr bool kAttendsInPairs = true;
#else
constexpr bool kAttendsInPairs = false;
#endif

void attention(const AttentionTask& task, float* scratch) {
#if defined(__AVX512BF16__)
  if (task.layout.in_pairs) return attend_in_pairs(task, scratch);
#endif
  switch (task.layout.format) {
    case KvFormat::kFloat32: return attend<KvFormat::kFloat32>(task, scratch);
    case KvFormat::kBFloat16: return attend<KvFormat::kBFloat16>(task, scratch);
    case KvFormat::kFloat16: return attend<KvFormat::kFloat16>(task, scratch);
    case KvFormat::kInt8: return attend<KvFormat::kInt8>(task, scratch);
  }
}

}  // namespace
}  // namespace pellucid
