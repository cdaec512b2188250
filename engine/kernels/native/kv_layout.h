// How keys and values lie in the pool: block by block, so that memory is taken as blocks are used; in a block, layer by
// layer; in a layer, one piece for each KV head. A piece holds the block's keys, its values and, in 8 bits, their scales:
//   keys [head_dim][block_size], values [block_size][head_dim], float key_scales [block_size], value_scales [block_size].
// In pairs, as products of bfloat16 take them:
//   keys [head_dim / 2][block_size][2 dimensions], values [block_size / 2][head_dim][2 tokens].
#pragma once
#include <cstdint>

namespace pellucid {

enum class KvFormat : int {
  kFloat32 = 0,
  kBFloat16 = 1,
  kFloat16 = 2,
  kInt8 = 3,  // one scale for each token, head and kind; value = scale * q, scale = absmax / 127
};

static inline int kv_value_bytes(KvFormat format) {
  return format == KvFormat::kFloat32 ? 4 : format == KvFormat::kInt8 ? 1 : 2;
}

struct KvLayout {
  KvFormat format = KvFormat::kFloat32;
  int head_dim = 0;
  int block_size = 0;
  bool in_pairs = false;

  int64_t values_offset() const { return int64_t(head_dim) * block_size * kv_value_bytes(format); }
  int64_t scales_offset() const { return (2 * values_offset() + 63) / 64 * 64; }
  int64_t piece_bytes() const {
    const int64_t scales = format == KvFormat::kInt8 ? 2 * int64_t(block_size) * int64_t(sizeof(float)) : 0;
    return (scales_offset() + scales + 63) / 64 * 64;
  }
};

// The layout for kernels that attend in pairs of bfloat16, or don't.
static inline KvLayout kv_layout(KvFormat format, int head_dim, int block_size, bool attends_in_pairs) {
  const bool fits = format == KvFormat::kBFloat16 && head_dim % 32 == 0 && block_size % 16 == 0;
  return {format, head_dim, block_size, attends_in_pairs && fits};
}

}  // namespace pellucid
