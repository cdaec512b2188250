// Where an attention task's rows, keys and values are.
#pragma once
#include "kernel_table.h"

namespace pellucid {
namespace {

// Where a task's rows are.
struct AttentionRows {
  const AttentionTask& task;
  float* scores;         // [num_rows][score_stride]
  int64_t score_stride;  // keys, rounded up

  int num_rows() const { return task.num_queries * task.group; }
  int num_keys(int row) const { return task.first_num_keys + row / task.group; }
  int most_keys() const { return task.first_num_keys + task.num_queries - 1; }
  const float* query(int row) const {
    return task.query + row / task.group * task.query_stride + int64_t(row % task.group) * task.layout.head_dim;
  }
  float* out(int row) const {
    return task.out + row / task.group * task.out_stride + int64_t(row % task.group) * task.layout.head_dim;
  }
  float* score(int row) const { return scores + row * score_stride; }
};

// The pieces of one KV head.
struct Pieces {
  const uint8_t* first;
  const int32_t* block_table;
  int64_t block_bytes;
  int last_block;

  explicit Pieces(const AttentionRows& rows)
      : first(rows.task.pieces),
        block_table(rows.task.block_table),
        block_bytes(rows.task.block_bytes),
        last_block((rows.most_keys() - 1) / rows.task.layout.block_size) {}

  const uint8_t* of(int block) const { return first + block_table[block] * block_bytes; }
  // The same for a look ahead, which may point past the end.
  const uint8_t* ahead(int block) const { return of(block < last_block ? block : last_block); }
};

}  // namespace
}  // namespace pellucid
