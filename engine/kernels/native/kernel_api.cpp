// Single kernels through C, for tests and measurements; the decoder calls the same tables without these detours.
#include <cstring>
#include <stdexcept>

#include "c_boundary.h"
#include "instruction_sets.h"
#include "packed_weights.h"

namespace {

using namespace pellucid;

const KernelTable& kernels_of(const char* instruction_set) {
  const KernelTable* kernels = find_kernels(instruction_set);
  if (!kernels) throw std::invalid_argument(std::string("this machine has no ") + instruction_set);
  return *kernels;
}

}  // namespace

extern "C" {

// y [num_rows][num_outputs] = x [num_rows][num_inputs] times the rows of weights, which are in `encoding`.
PELLUCID_EXPORT int32_t pellucid_matmul(const char* instruction_set, const char* encoding, const uint8_t* weights,
                                        int32_t num_outputs, int32_t num_inputs, const float* x, int32_t num_rows,
                                        float* y, char* message, int32_t size) {
  return guarded(message, size, [&] {
    const KernelTable& kernels = kernels_of(instruction_set);
    OwnedMatrix matrix;
    allocate_matrix(matrix, format_of(encoding, num_inputs), num_outputs, num_inputs);
    pack_rows(matrix, encoding, weights, 0, num_outputs);
    const int panels = num_panels(matrix.view);
    if (is_float(matrix.view.format)) {
      kernels.matmul_float(matrix.view, x, num_rows, 0, panels, y, num_outputs);
      return;
    }
    const OwnedRows rows(num_rows, num_inputs);
    for (int64_t row = 0; row < num_rows; ++row) {
      kernels.quantize_row(x + row * num_inputs, num_inputs, rows.view, int(row));
    }
    kernels.matmul_quantized(matrix.view, rows.view, num_rows, 0, panels, y, num_outputs);
  });
}

// out [num_rows][num_inputs] = the weights as floats, after packing.
PELLUCID_EXPORT int32_t pellucid_unpack(const char* encoding, const uint8_t* weights, int32_t num_outputs,
                                        int32_t num_inputs, float* out, char* message, int32_t size) {
  return guarded(message, size, [&] {
    OwnedMatrix matrix;
    allocate_matrix(matrix, format_of(encoding, num_inputs), num_outputs, num_inputs);
    pack_rows(matrix, encoding, weights, 0, num_outputs);
    for (int output = 0; output < num_outputs; ++output) {
      unpack_row(matrix.view, output, out + int64_t(output) * num_inputs);
    }
  });
}

// values [num_inputs], scales and sums [num_inputs / 32].
PELLUCID_EXPORT int32_t pellucid_quantize_row(const char* instruction_set, const float* x, int32_t num_inputs,
                                              int8_t* values, float* scales, float* sums, char* message,
                                              int32_t size) {
  return guarded(message, size, [&] {
    const OwnedRows rows(1, num_inputs);
    kernels_of(instruction_set).quantize_row(x, num_inputs, rows.view, 0);
    for (int i = 0; i < num_inputs; ++i) values[i] = rows.view.values[i / kBlock * kBlock * kRowGroup + i % kBlock];
    for (int b = 0; b < num_inputs / kBlock; ++b) {
      scales[b] = rows.view.scales[b * kRowGroup];
      sums[b] = rows.view.sums[b * kRowGroup];
    }
  });
}

PELLUCID_EXPORT int32_t pellucid_rms_norm(const char* instruction_set, const float* x, const float* weight,
                                          int32_t width, float epsilon, float* out, char* message, int32_t size) {
  return guarded(message, size, [&] { kernels_of(instruction_set).rms_norm(x, weight, width, epsilon, out); });
}

PELLUCID_EXPORT int32_t pellucid_swiglu(const char* instruction_set, const float* gate, const float* up, int32_t width,
                                        float* out, char* message, int32_t size) {
  return guarded(message, size, [&] { kernels_of(instruction_set).swiglu(gate, up, width, out); });
}

// Attention of num_queries neighbouring queries over one KV head; query and out: [num_queries][group][head_dim], keys and
// values: [num_tokens][num_kv_heads][head_dim], stored in kv_format in the blocks of block_table. Slots of the pool that
// hold no token are filled with what must not be read: not-a-number, in 8 bits as the scale.
PELLUCID_EXPORT int32_t pellucid_attention(const char* instruction_set, int32_t kv_format, const float* query,
                                           const float* keys, const float* values, int32_t num_tokens,
                                           const int32_t* block_table, int32_t num_blocks, int32_t num_queries,
                                           int32_t group, int32_t head_dim, int32_t block_size, int32_t num_kv_heads,
                                           int32_t kv_head, int32_t first_num_keys, float* out, char* message,
                                           int32_t size) {
  return guarded(message, size, [&] {
    const KernelTable& kernels = kernels_of(instruction_set);
    if (num_queries * group > kMaxAttentionRows) throw std::invalid_argument("too many rows for one task");
    if (head_dim > kMaxHeadDim) throw std::invalid_argument("heads are too wide");
    AttentionTask task;
    task.layout = {KvFormat(kv_format), head_dim, block_size};
    task.block_bytes = num_kv_heads * task.layout.piece_bytes();
    AlignedMemory pool(size_t(num_blocks * task.block_bytes));
    std::memset(pool.data(), 0xff, pool.size());
    for (int64_t token = 0; token < num_tokens; ++token) {
      for (int head = 0; head < num_kv_heads; ++head) {
        uint8_t* piece = pool.data() + block_table[token / block_size] * task.block_bytes;
        const int64_t at = (token * num_kv_heads + head) * head_dim;
        kernels.store_kv(task.layout, piece + head * task.layout.piece_bytes(), int(token % block_size), keys + at,
                         values + at);
      }
    }
    task.query = query;
    task.out = out;
    task.query_stride = task.out_stride = int64_t(group) * head_dim;
    task.pieces = pool.data() + kv_head * task.layout.piece_bytes();
    task.block_table = block_table;
    task.num_queries = num_queries;
    task.group = group;
    task.first_num_keys = first_num_keys;
    task.scale = attention_scale(head_dim);
    const int64_t floats = attention_scratch(num_queries * group, first_num_keys + num_queries, head_dim);
    AlignedMemory scratch(size_t(floats) * sizeof(float));
    kernels.attention(task, reinterpret_cast<float*>(scratch.data()));
  });
}
}
