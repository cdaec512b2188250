// Single kernels through C, for tests, measurements and the three bindings. Every function answers 0, or 1 with what was
// wrong in message[size].
#pragma once
#include <cstdint>

#include "c_boundary.h"

// The functions below by name, so that a binding lists them without repeating them.
#define PELLUCID_KERNEL_FUNCTIONS(X) \
  X(matmul) X(unpack) X(activation_steps) X(quantize_row) X(rms_norm) X(softmax) X(swiglu) X(rope) X(pack_cache) \
  X(free_cache) X(attention) X(sequence_attention) X(pack_matrix) X(matmul_packed) X(free_matrix) X(add_rests)

extern "C" {

// Nothing, to measure what a call costs: without arguments, and with those of a small kernel.
PELLUCID_EXPORT int32_t pellucid_empty_call();
PELLUCID_EXPORT int32_t pellucid_take_arguments(const float* x, const float* weight, int32_t width, float epsilon,
                                                float* out);

// y [num_rows][num_outputs] = x [num_rows][num_inputs] times the rows of weights, which are in `encoding`.
PELLUCID_EXPORT int32_t pellucid_matmul(const char* instruction_set, const char* encoding, const uint8_t* weights,
                                        int32_t num_outputs, int32_t num_inputs, const float* x, int32_t num_rows,
                                        float* y, char* message, int32_t size);

// out [num_outputs][num_inputs] = the weights as floats, after packing for instruction_set.
PELLUCID_EXPORT int32_t pellucid_unpack(const char* instruction_set, const char* encoding, const uint8_t* weights,
                                        int32_t num_outputs, int32_t num_inputs, float* out, char* message, int32_t size);

// steps [2]: to how many whole steps of a block's largest magnitude the kernels round activations that meet weights in
// `encoding`, both being tried; 0 where they aren't rounded to integers.
PELLUCID_EXPORT int32_t pellucid_activation_steps(const char* instruction_set, const char* encoding, int32_t num_inputs,
                                                  int32_t* steps, char* message, int32_t size);

// values [num_inputs], scales, sums and starts [num_inputs / 32]. is_halved: as for half as many products, or starts are 0.
PELLUCID_EXPORT int32_t pellucid_quantize_row(const char* instruction_set, const float* x, int32_t num_inputs,
                                              int32_t is_halved, int8_t* values, float* scales, float* sums,
                                              int32_t* starts, char* message, int32_t size);

// x, out [num_rows][width]; weight [width].
PELLUCID_EXPORT int32_t pellucid_rms_norm(const char* instruction_set, const float* x, const float* weight,
                                          int32_t num_rows, int32_t width, float epsilon, float* out, char* message,
                                          int32_t size);

// x, out [num_rows][width].
PELLUCID_EXPORT int32_t pellucid_softmax(const char* instruction_set, const float* x, int32_t num_rows, int32_t width,
                                         float* out, char* message, int32_t size);

// gate, up, out [count].
PELLUCID_EXPORT int32_t pellucid_swiglu(const char* instruction_set, const float* gate, const float* up, int32_t count,
                                        float* out, char* message, int32_t size);

// x, out [num_tokens][num_heads][head_dim]; cosines, sines [num_tokens][head_dim / 2].
PELLUCID_EXPORT int32_t pellucid_rope(const char* instruction_set, const float* x, const float* cosines,
                                      const float* sines, int32_t num_tokens, int32_t num_heads, int32_t head_dim,
                                      float* out, char* message, int32_t size);

// Stores keys and values [num_tokens][num_kv_heads][head_dim] of one sequence in the blocks of block_table, in kv_format
// (see kv_layout.h); *cache is a handle. Slots of the pool of num_blocks that hold no token are filled with what must not
// be read: not-a-number, in 8 bits as the scale.
PELLUCID_EXPORT int32_t pellucid_pack_cache(const char* instruction_set, int32_t kv_format, const float* keys,
                                            const float* values, int32_t num_tokens, const int32_t* block_table,
                                            int32_t num_blocks, int32_t head_dim, int32_t block_size,
                                            int32_t num_kv_heads, int64_t* cache, char* message, int32_t size);
PELLUCID_EXPORT int32_t pellucid_free_cache(int64_t cache, char* message, int32_t size);

// Attention of num_queries neighbouring queries over one KV head; query and out: [num_queries][group][head_dim].
PELLUCID_EXPORT int32_t pellucid_attention(const char* instruction_set, int64_t cache, const float* query,
                                           int32_t num_queries, int32_t group, int32_t kv_head,
                                           int32_t first_num_keys, float* out, char* message, int32_t size);

// The same over all heads of the sequence; query and out: [num_queries][num_heads][head_dim].
PELLUCID_EXPORT int32_t pellucid_sequence_attention(const char* instruction_set, int64_t cache, const float* query,
                                                    int32_t num_queries, int32_t num_heads, int32_t first_num_keys,
                                                    float* out, char* message, int32_t size);

// Packs weights once for the products of instruction_set; *matrix is a handle for matmul_packed and, in the end,
// free_matrix.
PELLUCID_EXPORT int32_t pellucid_pack_matrix(const char* instruction_set, const char* encoding, const uint8_t* weights,
                                             int32_t num_outputs, int32_t num_inputs, int64_t* matrix, char* message,
                                             int32_t size);
PELLUCID_EXPORT int32_t pellucid_matmul_packed(const char* instruction_set, int64_t matrix, const float* x,
                                               int32_t num_rows, float* y, char* message, int32_t size);
PELLUCID_EXPORT int32_t pellucid_free_matrix(int64_t matrix, char* message, int32_t size);

// y [num_rows][num_outputs] += the products of the rows' rests, what their rounding left over in the blocks with the
// largest scales, with weights that are multiplied with rows in 8 bits.
PELLUCID_EXPORT int32_t pellucid_add_rests(const char* instruction_set, const char* encoding, const uint8_t* weights,
                                           int32_t num_outputs, int32_t num_inputs, const float* x, int32_t num_rows,
                                           float* y, char* message, int32_t size);
}
