// Paged attention of a few neighbouring queries over one KV head. A row is a (query, head) pair; rows share the reads
// of keys and values. A row's scores add dimensions in ascending order, its output adds keys in ascending order, whatever
// rows it shares a tile with.
#pragma once
#include "lanes.h"

namespace pellucid {
namespace {

struct AttentionRows {
  const AttentionTask& task;
  float* scores;         // [num_rows][score_stride]
  int64_t score_stride;  // keys, rounded up

  int num_rows() const { return task.num_queries * task.group; }
  int num_keys(int row) const { return task.first_num_keys + row / task.group; }
  const float* query(int row) const {
    return task.query + row / task.group * task.query_stride + int64_t(row % task.group) * task.head_dim;
  }
  float* out(int row) const {
    return task.out + row / task.group * task.out_stride + int64_t(row % task.group) * task.head_dim;
  }
  const float* block_of(const float* cache, int block) const {
    return cache + task.block_table[block] * task.block_stride + task.head_offset;
  }
};

// Asks for the line at p; blocks lie scattered, so the hardware's own prefetcher starts anew in each.
inline void prefetch(const float* p) { __builtin_prefetch(p); }

// Scores of ROWS rows against VECTORS x 16 keys that start at key 16 * vector.
template <int ROWS, int VECTORS>
inline void score_tile(const AttentionRows& rows, int row, int vector) {
  const int block_size = rows.task.block_size, per_block = block_size / kPanel;
  const float* keys[VECTORS];
  const float* query[ROWS];
  Lanes total[ROWS][VECTORS];
#pragma GCC unroll 4
  for (int v = 0; v < VECTORS; ++v) {
    keys[v] = rows.block_of(rows.task.keys, (vector + v) / per_block) + (vector + v) % per_block * kPanel;
  }
#pragma GCC unroll 4
  for (int r = 0; r < ROWS; ++r) {
    query[r] = rows.query(row + r);
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v) total[r][v] = zeros();
  }
  // The first rows to pass also ask for what comes next: the keys of the next tile, or the values of this one.
  const int num_vectors = (rows.num_keys(rows.num_rows() - 1) + kPanel - 1) / kPanel;
  const float* ahead[VECTORS];
#pragma GCC unroll 4
  for (int v = 0; v < VECTORS; ++v) {
    const int next = vector + v + VECTORS;
    const bool is_key = next < num_vectors;
    const int place = is_key ? next : vector + v;
    ahead[v] = rows.block_of(is_key ? rows.task.keys : rows.task.values, place / per_block);
    ahead[v] += place % per_block * (is_key ? kPanel : kPanel * rows.task.head_dim);
  }
  for (int d = 0; d < rows.task.head_dim; ++d) {
    if (row == 0) {
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; ++v) prefetch(ahead[v] + int64_t(d) * kPanel);
    }
    Lanes key[VECTORS];
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v) key[v] = load(keys[v] + int64_t(d) * block_size);
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; ++r) {
      const Lanes q = broadcast(query[r][d]);
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; ++v) total[r][v] = multiply_add(q, key[v], total[r][v]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < ROWS; ++r) {
    float* out = rows.scores + (row + r) * rows.score_stride + int64_t(vector) * kPanel;
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v) store(out + v * kPanel, total[r][v]);
  }
}

template <int ROWS>
inline void score_rows(const AttentionRows& rows, int row) {
  const int num_vectors = (rows.num_keys(rows.num_rows() - 1) + kPanel - 1) / kPanel;
  int vector = 0;
  for (; vector + kTileVectors <= num_vectors; vector += kTileVectors) {
    score_tile<ROWS, kTileVectors>(rows, row, vector);
  }
  for (; vector < num_vectors; ++vector) score_tile<ROWS, 1>(rows, row, vector);
}

// Blocks that don't divide into vectors of 16 keys.
inline void score_row_plain(const AttentionRows& rows, int row) {
  const AttentionTask& task = rows.task;
  const float* query = rows.query(row);
  float* out = rows.scores + row * rows.score_stride;
  for (int key = 0; key < rows.num_keys(row); ++key) {
    const float* k = rows.block_of(task.keys, key / task.block_size) + key % task.block_size;
    float total = 0.0f;
    for (int d = 0; d < task.head_dim; ++d) total = multiply_add(query[d], k[int64_t(d) * task.block_size], total);
    out[key] = total;
  }
}

// Turns scores into e^(scale * (s - max)); returns 1 / their sum. Sixteen partial sums, then their sum in order.
inline float exponentiate(float* s, int num_keys, float scale) {
  float largest_of[kPanel];
  for (int lane = 0; lane < kPanel; ++lane) largest_of[lane] = s[0];
  int t = 0;
  for (; t + kPanel <= num_keys; t += kPanel) {
    for (int lane = 0; lane < kPanel; ++lane) {
      largest_of[lane] = s[t + lane] > largest_of[lane] ? s[t + lane] : largest_of[lane];
    }
  }
  float largest = s[0];
  for (int lane = 0; lane < kPanel; ++lane) largest = largest_of[lane] > largest ? largest_of[lane] : largest;
  for (; t < num_keys; ++t) largest = s[t] > largest ? s[t] : largest;
  float partial[kPanel] = {};
  for (t = 0; t + kPanel <= num_keys; t += kPanel) {
    for (int lane = 0; lane < kPanel; ++lane) {
      s[t + lane] = exp_approx((s[t + lane] - largest) * scale);
      partial[lane] += s[t + lane];
    }
  }
  for (int lane = 0; t + lane < num_keys; ++lane) {
    s[t + lane] = exp_approx((s[t + lane] - largest) * scale);
    partial[lane] += s[t + lane];
  }
  float sum = 0.0f;
  for (int lane = 0; lane < kPanel; ++lane) sum += partial[lane];
  return 1.0f / sum;
}

// out[row][16 * vector ...] += scores x values over keys first..last-1, for ROWS rows and VECTORS x 16 dimensions.
template <int ROWS, int VECTORS>
inline void weigh_tile(const AttentionRows& rows, int row, int vector, int first, int last) {
  const AttentionTask& task = rows.task;
  const float* scores[ROWS];
  Lanes total[ROWS][VECTORS];
#pragma GCC unroll 4
  for (int r = 0; r < ROWS; ++r) {
    scores[r] = rows.scores + (row + r) * rows.score_stride;
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v) total[r][v] = load(rows.out(row + r) + (vector + v) * kPanel);
  }
  for (int key = first; key < last;) {
    const int offset = key % task.block_size, rest = task.block_size - offset;
    const int stop = key + rest < last ? key + rest : last;
    const float* value = rows.block_of(task.values, key / task.block_size) + int64_t(offset) * task.head_dim;
    value += vector * kPanel;
    const int block = key / task.block_size;
    const float* ahead = stop < last ? rows.block_of(task.values, block + 1) + vector * kPanel : value;
    for (; key < stop; ++key, value += task.head_dim, ahead += task.head_dim) {
      if (row == 0) {
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; ++v) prefetch(ahead + v * kPanel);
      }
      Lanes lanes[VECTORS];
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; ++v) lanes[v] = load(value + v * kPanel);
#pragma GCC unroll 4
      for (int r = 0; r < ROWS; ++r) {
        const Lanes p = broadcast(scores[r][key]);
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

template <int ROWS>
inline void weigh_rows(const AttentionRows& rows, int row, int first, int last) {
  const int head_dim = rows.task.head_dim, num_vectors = head_dim / kPanel;
  int vector = 0;
  for (; vector + kTileVectors <= num_vectors; vector += kTileVectors) {
    weigh_tile<ROWS, kTileVectors>(rows, row, vector, first, last);
  }
  for (; vector < num_vectors; ++vector) weigh_tile<ROWS, 1>(rows, row, vector, first, last);
  for (int r = row; r < row + ROWS; ++r) {
    for (int d = num_vectors * kPanel; d < head_dim; ++d) {
      float total = rows.out(r)[d];
      for (int key = first; key < last; ++key) {
        const float* value = rows.block_of(rows.task.values, key / rows.task.block_size);
        value += int64_t(key % rows.task.block_size) * head_dim;
        total = multiply_add(rows.scores[r * rows.score_stride + key], value[d], total);
      }
      rows.out(r)[d] = total;
    }
  }
}

void attention(const AttentionTask& task, float* scores) {
  const int most_keys = task.first_num_keys + task.num_queries - 1;
  const AttentionRows rows{task, scores, (most_keys + kPanel - 1) / kPanel * kPanel};
  const int num_rows = rows.num_rows();
  float inverse[kMaxAttentionRows];
  if (task.block_size % kPanel == 0) {
    int row = 0;
    for (; row + kTileRows <= num_rows; row += kTileRows) score_rows<kTileRows>(rows, row);
    if (num_rows - row == 3) score_rows<3>(rows, row);
    if (num_rows - row == 2) score_rows<2>(rows, row);
    if (num_rows - row == 1) score_rows<1>(rows, row);
  } else {
    for (int row = 0; row < num_rows; ++row) score_row_plain(rows, row);
  }
  for (int row = 0; row < num_rows; ++row) {
    inverse[row] = exponentiate(scores + row * rows.score_stride, rows.num_keys(row), task.scale);
    std::memset(rows.out(row), 0, size_t(task.head_dim) * sizeof(float));
  }
  // Keys that every row sees are read once per tile; the last few belong to the later queries only.
  int row = 0;
  for (; row + kTileRows <= num_rows; row += kTileRows) weigh_rows<kTileRows>(rows, row, 0, task.first_num_keys);
  if (num_rows - row == 3) weigh_rows<3>(rows, row, 0, task.first_num_keys);
  if (num_rows - row == 2) weigh_rows<2>(rows, row, 0, task.first_num_keys);
  if (num_rows - row == 1) weigh_rows<1>(rows, row, 0, task.first_num_keys);
  for (row = 0; row < num_rows; ++row) {
    weigh_rows<1>(rows, row, task.first_num_keys, rows.num_keys(row));
    float* out = rows.out(row);
    for (int d = 0; d < task.head_dim; ++d) out[d] *= inverse[row];
  }
}

}  // namespace
}  // namespace pellucid
