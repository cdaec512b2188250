// Single kernels through C; the decoder calls the same tables without these detours.
#include "kernel_api.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "instruction_sets.h"
#include "packed_weights.h"
#include "rest_blocks.h"

namespace {

using namespace pellucid;

const KernelTable& kernels_of(const char* instruction_set) {
  const KernelTable* kernels = find_kernels(instruction_set);
  if (!kernels) throw std::invalid_argument(std::string("this machine has no ") + instruction_set);
  return *kernels;
}

std::unique_ptr<OwnedMatrix> packed(const KernelTable& kernels, const char* encoding, const uint8_t* weights,
                                    int num_outputs, int num_inputs) {
  auto matrix = std::make_unique<OwnedMatrix>();
  allocate_matrix(*matrix, format_of(kernels, encoding, num_inputs), num_outputs, num_inputs);
  pack_rows(*matrix, encoding, weights, 0, num_outputs);
  return matrix;
}

// Rows in 8 bits, for half as many products or for all.
QuantizedRows rounded(const KernelTable& kernels, bool is_halved, const float* x, int num_rows, int num_inputs,
                      const OwnedRows& memory) {
  QuantizedRows rows = memory.view;
  if (!is_halved) rows.halved_starts = nullptr;
  const int blocks = num_inputs / kBlock;
  kernels.quantize_blocks(x, num_inputs, num_rows, blocks, rows, blocks, 0, 0);
  return rows;
}

void multiply(const KernelTable& kernels, const PackedMatrix& matrix, const float* x, int num_rows, float* y) {
  const int panels = num_panels(matrix), num_inputs = matrix.num_inputs;
  if (is_float(matrix.format)) {
    kernels.matmul_float(matrix, x, num_rows, 0, panels, y, matrix.num_outputs);
    return;
  }
  if (is_tiled(matrix.format)) {
    if (!kernels.matmul_tiled) throw std::invalid_argument("the matrix was packed for other kernels");
    const int64_t places = int64_t(num_rows + kRowGroup - 1) / kRowGroup * kRowGroup;
    const int blocks = num_inputs / kBlock;
    const AlignedMemory memory(size_t(places * num_paired_blocks(blocks) * kBlock) * sizeof(uint16_t));
    uint16_t* pairs = reinterpret_cast<uint16_t*>(memory.data());
    kernels.pair_blocks(x, num_inputs, num_rows, blocks, pairs, blocks, 0, 0);
    kernels.matmul_tiled(matrix, pairs, num_rows, 0, panels, y, matrix.num_outputs);
    return;
  }
  const OwnedRows memory(num_rows, num_inputs);
  const QuantizedRows rows = rounded(kernels, is_halved(kernels, matrix.format), x, num_rows, num_inputs, memory);
  kernels.matmul_quantized(matrix, rows, num_rows, 0, panels, y, matrix.num_outputs);
}

// The paged cache of one sequence.
struct PagedCache {
  KvLayout layout;
  int num_kv_heads;
  std::vector<int32_t> block_table;
  AlignedMemory pool;

  int64_t block_bytes() const { return num_kv_heads * layout.piece_bytes(); }
};

AttentionTask task_of(const PagedCache& cache, int kv_head, int num_queries, int group, int first_num_keys) {
  AttentionTask task;
  task.pieces = cache.pool.data() + kv_head * cache.layout.piece_bytes();
  task.block_bytes = cache.block_bytes();
  task.layout = cache.layout;
  task.block_table = cache.block_table.data();
  task.num_queries = num_queries;
  task.group = group;
  task.first_num_keys = first_num_keys;
  task.scale = attention_scale(cache.layout.head_dim);
  return task;
}

std::unique_ptr<float[]> scratch_for(const PagedCache& cache, int num_rows, int num_keys) {
  return std::unique_ptr<float[]>(new float[size_t(attention_scratch(num_rows, num_keys, cache.layout))]);
}

}  // namespace

int32_t pellucid_empty_call() { return 0; }

int32_t pellucid_take_arguments(const float*, const float*, int32_t, float, float*) { return 0; }

int32_t pellucid_matmul(const char* instruction_set, const char* encoding, const uint8_t* weights, int32_t num_outputs,
                        int32_t num_inputs, const float* x, int32_t num_rows, float* y, char* message, int32_t size) {
  return guarded(message, size, [&] {
    const KernelTable& kernels = kernels_of(instruction_set);
    multiply(kernels, packed(kernels, encoding, weights, num_outputs, num_inputs)->view, x, num_rows, y);
  });
}

int32_t pellucid_unpack(const char* instruction_set, const char* encoding, const uint8_t* weights, int32_t num_outputs,
                        int32_t num_inputs, float* out, char* message, int32_t size) {
  return guarded(message, size, [&] {
    const auto matrix = packed(kernels_of(instruction_set), encoding, weights, num_outputs, num_inputs);
    for (int output = 0; output < num_outputs; ++output) {
      unpack_row(matrix->view, output, out + int64_t(output) * num_inputs);
    }
  });
}

int32_t pellucid_activation_steps(const char* instruction_set, const char* encoding, int32_t num_inputs, int32_t* steps,
                                  char* message, int32_t size) {
  return guarded(message, size, [&] {
    const KernelTable& kernels = kernels_of(instruction_set);
    const Format format = format_of(kernels, encoding, num_inputs);
    const bool is_rounded = !is_float(format) && !is_tiled(format);
    for (int i = 0; i < 2; ++i) {
      steps[i] = is_rounded ? int32_t(is_halved(kernels, format) ? kHalvedSteps[i] : kMostSteps[i]) : 0;
    }
  });
}

int32_t pellucid_quantize_row(const char* instruction_set, const float* x, int32_t num_inputs, int32_t is_halved,
                              int8_t* values, float* scales, float* sums, int32_t* starts, char* message, int32_t size) {
  return guarded(message, size, [&] {
    const OwnedRows memory(1, num_inputs);
    const QuantizedRows rows = rounded(kernels_of(instruction_set), is_halved, x, 1, num_inputs, memory);
    for (int i = 0; i < num_inputs; ++i) values[i] = rows.values[i / kBlock * kBlock * kRowGroup + i % kBlock];
    for (int b = 0; b < num_inputs / kBlock; ++b) {
      scales[b] = rows.scales[b * kRowGroup];
      sums[b] = rows.sums[b * kRowGroup];
      starts[b] = is_halved ? rows.halved_starts[b * kRowGroup] : 0;
    }
  });
}

int32_t pellucid_rms_norm(const char* instruction_set, const float* x, const float* weight, int32_t num_rows,
                          int32_t width, float epsilon, float* out, char* message, int32_t size) {
  return guarded(message, size, [&] {
    const KernelTable& kernels = kernels_of(instruction_set);
    for (int64_t at = 0; at < int64_t(num_rows) * width; at += width) {
      kernels.rms_norm(x + at, weight, width, epsilon, out + at);
    }
  });
}

int32_t pellucid_softmax(const char* instruction_set, const float* x, int32_t num_rows, int32_t width, float* out,
                         char* message, int32_t size) {
  return guarded(message, size, [&] {
    const KernelTable& kernels = kernels_of(instruction_set);
    for (int64_t at = 0; at < int64_t(num_rows) * width; at += width) kernels.softmax(x + at, width, out + at);
  });
}

int32_t pellucid_swiglu(const char* instruction_set, const float* gate, const float* up, int32_t count, float* out,
                        char* message, int32_t size) {
  return guarded(message, size, [&] { kernels_of(instruction_set).swiglu(gate, up, count, out); });
}

int32_t pellucid_rope(const char* instruction_set, const float* x, const float* cosines, const float* sines,
                      int32_t num_tokens, int32_t num_heads, int32_t head_dim, float* out, char* message,
                      int32_t size) {
  return guarded(message, size, [&] {
    if (head_dim % 2) throw std::invalid_argument("head_dim must be even");
    const KernelTable& kernels = kernels_of(instruction_set);
    const int64_t width = int64_t(num_heads) * head_dim, half = head_dim / 2;
    for (int64_t token = 0; token < num_tokens; ++token) {
      kernels.rope(x + token * width, cosines + token * half, sines + token * half, num_heads, head_dim,
                   out + token * width);
    }
  });
}

int32_t pellucid_pack_cache(const char* instruction_set, int32_t kv_format, const float* keys, const float* values,
                            int32_t num_tokens, const int32_t* block_table, int32_t num_blocks, int32_t head_dim,
                            int32_t block_size, int32_t num_kv_heads, int64_t* cache, char* message, int32_t size) {
  return guarded(message, size, [&] {
    if (head_dim > kMaxHeadDim) throw std::invalid_argument("heads are too wide");
    const KernelTable& kernels = kernels_of(instruction_set);
    const int num_used = (num_tokens + block_size - 1) / block_size;
    auto made = std::make_unique<PagedCache>();
    made->layout = kv_layout(KvFormat(kv_format), head_dim, block_size, kernels.attends_in_pairs);
    made->num_kv_heads = num_kv_heads;
    made->block_table.assign(block_table, block_table + num_used);
    made->pool = AlignedMemory(size_t(num_blocks * made->block_bytes()));
    std::memset(made->pool.data(), 0xff, made->pool.size());
    for (int64_t token = 0; token < num_tokens; ++token) {
      uint8_t* block = made->pool.data() + block_table[token / block_size] * made->block_bytes();
      for (int head = 0; head < num_kv_heads; ++head) {
        const int64_t at = (token * num_kv_heads + head) * head_dim;
        kernels.store_kv(made->layout, block + head * made->layout.piece_bytes(), int(token % block_size), keys + at,
                         values + at);
      }
    }
    *cache = reinterpret_cast<int64_t>(made.release());
  });
}

int32_t pellucid_free_cache(int64_t cache, char* message, int32_t size) {
  return guarded(message, size, [&] { delete reinterpret_cast<PagedCache*>(cache); });
}

int32_t pellucid_attention(const char* instruction_set, int64_t cache, const float* query, int32_t num_queries,
                           int32_t group, int32_t kv_head, int32_t first_num_keys, float* out, char* message,
                           int32_t size) {
  return guarded(message, size, [&] {
    const KernelTable& kernels = kernels_of(instruction_set);
    const PagedCache& paged = *reinterpret_cast<const PagedCache*>(cache);
    if (num_queries * group > kMaxAttentionRows) throw std::invalid_argument("too many rows for one task");
    AttentionTask task = task_of(paged, kv_head, num_queries, group, first_num_keys);
    task.query = query;
    task.out = out;
    task.query_stride = task.out_stride = int64_t(group) * paged.layout.head_dim;
    const auto scratch = scratch_for(paged, num_queries * group, first_num_keys + num_queries - 1);
    kernels.attention(task, scratch.get());
  });
}

int32_t pellucid_sequence_attention(const char* instruction_set, int64_t cache, const float* query,
                                    int32_t num_queries, int32_t num_heads, int32_t first_num_keys, float* out,
                                    char* message, int32_t size) {
  return guarded(message, size, [&] {
    const KernelTable& kernels = kernels_of(instruction_set);
    const PagedCache& paged = *reinterpret_cast<const PagedCache*>(cache);
    const int num_kv_heads = paged.num_kv_heads, head_dim = paged.layout.head_dim;
    const int group = num_heads / num_kv_heads;
    if (num_heads % num_kv_heads || group == 0 || group > kMaxAttentionRows) {
      throw std::invalid_argument("unsupported number of heads");
    }
    const int queries_per_task = std::min(num_queries, kMaxAttentionRows / group);
    const auto scratch = scratch_for(paged, queries_per_task * group, first_num_keys + num_queries - 1);
    const int64_t stride = int64_t(num_heads) * head_dim;
    for (int first = 0; first < num_queries; first += queries_per_task) {
      const int count = std::min(queries_per_task, num_queries - first);
      for (int kv_head = 0; kv_head < num_kv_heads; ++kv_head) {
        AttentionTask task = task_of(paged, kv_head, count, group, first_num_keys + first);
        const int64_t at = first * stride + int64_t(kv_head) * group * head_dim;
        task.query = query + at;
        task.out = out + at;
        task.query_stride = task.out_stride = stride;
        kernels.attention(task, scratch.get());
      }
    }
  });
}

int32_t pellucid_pack_matrix(const char* instruction_set, const char* encoding, const uint8_t* weights,
                             int32_t num_outputs, int32_t num_inputs, int64_t* matrix, char* message, int32_t size) {
  return guarded(message, size, [&] {
    auto made = packed(kernels_of(instruction_set), encoding, weights, num_outputs, num_inputs);
    *matrix = reinterpret_cast<int64_t>(made.release());
  });
}

int32_t pellucid_matmul_packed(const char* instruction_set, int64_t matrix, const float* x, int32_t num_rows, float* y,
                               char* message, int32_t size) {
  return guarded(message, size, [&] {
    multiply(kernels_of(instruction_set), reinterpret_cast<const OwnedMatrix*>(matrix)->view, x, num_rows, y);
  });
}

int32_t pellucid_free_matrix(int64_t matrix, char* message, int32_t size) {
  return guarded(message, size, [&] { delete reinterpret_cast<OwnedMatrix*>(matrix); });
}

int32_t pellucid_add_rests(const char* instruction_set, const char* encoding, const uint8_t* weights,
                           int32_t num_outputs, int32_t num_inputs, const float* x, int32_t num_rows, float* y,
                           char* message, int32_t size) {
  return guarded(message, size, [&] {
    const KernelTable& kernels = kernels_of(instruction_set);
    const auto matrix = packed(kernels, encoding, weights, num_outputs, num_inputs);
    if (is_float(matrix->view.format) || is_tiled(matrix->view.format)) {
      throw std::invalid_argument(std::string("rows are not rounded to 8 bits for ") + encoding);
    }
    const int blocks = num_inputs / kBlock, rests_a_row = num_rests(blocks);
    const OwnedRows memory(num_rows, num_inputs);
    const AlignedMemory rest_memory(size_t(num_rows * rests_a_row) * sizeof(RestBlock));
    RestBlock* rests = reinterpret_cast<RestBlock*>(rest_memory.data());
    const bool halves = is_halved(kernels, matrix->view.format);
    const QuantizedRows rows = rounded(kernels, halves, x, num_rows, num_inputs, memory);
    round_rests(kernels, x, num_inputs, num_rows, blocks, rows, 0, rests);
    kernels.add_rests(matrix->view, rests, num_rows, 0, num_panels(matrix->view), y, num_outputs);
  });
}
