// The kernels that exist once per instruction set, behind one table of function pointers.
//
// Numerics, the same in every table: integer dot products are exact; a matrix product adds the blocks of 32 inputs in
// ascending order into one float accumulator per output, so that a row's result depends on neither the number of rows,
// nor the tile, nor the thread that computes it.
#pragma once
#include <cstdint>

namespace pellucid {

constexpr int kPanel = 16;  // outputs computed side by side
constexpr int kBlock = 32;  // inputs that share a scale

// How a matrix [num_outputs, num_inputs] is stored: panels of 16 outputs, inputs in blocks of 32 inside a panel.
enum class Format : int {
  kFloat32 = 0,  // values: float [panel][input][16]
  kUint4 = 1,    // w = scale * q + offset, q in 0..15: values: uint8 [panel][block][4][16][4], low nibbles inputs 0..15
  kUint8 = 2,    // w = scale * (q - 128), q in 0..255: values: uint8 [panel][block][8][16][4]
};

struct PackedMatrix {
  Format format = Format::kFloat32;
  int num_outputs = 0;
  int num_inputs = 0;
  const void* values = nullptr;
  const uint16_t* scales = nullptr;   // float16 [panel][block][16]
  const uint16_t* offsets = nullptr;  // float16 [panel][block][16], kUint4 only

  int num_panels() const { return (num_outputs + kPanel - 1) / kPanel; }
  int num_blocks() const { return num_inputs / kBlock; }
};

// Rows of activations, quantised to 8 bits with one scale per block of 32.
struct QuantizedRows {
  int8_t* values;  // [row][num_inputs]
  float* scales;   // [row][num_blocks]
  float* sums;     // [row][num_blocks]: scale * sum of the block's values
};

struct KernelTable {
  const char* name;
  // Quantises one row; scale = absmax / 127.
  void (*quantize_row)(const float* x, int num_inputs, int8_t* values, float* scales, float* sums);
  // y[row][output] for panels first..last-1 of a kUint4 or kUint8 matrix; y has `stride` floats a row.
  void (*matmul_quantized)(const PackedMatrix& w, const QuantizedRows& x, int num_rows, int first_panel,
                           int last_panel, float* y, int64_t stride);
  // The same for a kFloat32 matrix and float rows.
  void (*matmul_float)(const PackedMatrix& w, const float* x, int num_rows, int first_panel, int last_panel, float* y,
                       int64_t stride);
  // out = x / rms(x) * weight (Zhang and Sennrich, arXiv 1910.07467).
  void (*rms_norm)(const float* x, const float* weight, int size, float epsilon, float* out);
  // out[i] = silu(gate[i]) * up[i] (Shazeer, arXiv 2002.05202).
  void (*swiglu)(const float* gate, const float* up, int size, float* out);
  // One query token, `group` heads that share a KV head, over `num_keys` keys of a paged cache, blocks in order.
  //   query, out: float [group][head_dim]; scores: scratch, float [group][round up of num_keys to block_size]
  //   keys: float [block][kv_head][head_dim][block_size]; values: float [block][kv_head][block_size][head_dim]
  void (*attention)(const float* query, const float* keys, const float* values, const int32_t* block_table,
                    int num_keys, int block_size, int head_dim, int group, int64_t block_stride, int64_t head_offset,
                    float scale, float* scores, float* out);
};

const KernelTable* portable_kernels();
const KernelTable* avx2_kernels();    // nullptr when not built
const KernelTable* avx512_kernels();  // nullptr when not built

}  // namespace pellucid
