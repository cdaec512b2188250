// The kernels that exist once per instruction set, behind one table of function pointers.
//
// Numerics, the same in every table: integer dot products are exact; a matrix product adds the blocks of 32 inputs in
// ascending order into one float accumulator per output, so that a row's result depends on neither the number of rows,
// nor the tile, nor the thread that computes it.
#pragma once
#include <cstdint>

#include "kv_layout.h"

namespace pellucid {

constexpr int kPanel = 16;  // outputs computed side by side
constexpr int kBlock = 32;  // inputs that share a scale

// How a matrix [num_outputs, num_inputs] is stored: panels of 16 outputs, inputs in blocks of 32 inside a panel, all of a
// block in one piece, so that a panel is one stream of memory.
enum class Format : int {
  kFloat32 = 0,  // float [panel][input][16]
  // w = scale * q + offset, q in 0..15: [panel][block]{float16 scale[16], offset[16]; low}; low: uint8 [4][16][4], where
  // the low nibbles of the j-th 64 bytes are inputs 4j..4j+3 of the 16 outputs and the high nibbles inputs 16+4j...
  kUint4 = 1,
  // w = scale * (q - 128), q in 0..255: [panel][block]{float scale[16]; uint8 [8][16][4]}
  kUint8 = 2,
  kBFloat16 = 3,  // uint16 [panel][input][16]
  kFloat16 = 4,   // the same
  // The same as kUint4 with q in 0..31: low is followed by uint8 [16][4], whose bit j is the fifth of inputs 4j..4j+3.
  kUint5 = 5,
  // Super-blocks of eight blocks, w = scale * s * q + offset * m: [panel][super-block]{float16 scale[16], offset[16];
  // [block]{uint8 s[16], m[16]}; [block] low}.
  kUint4K = 6,
  kUint5K = 7,  // the same with q in 0..31, as in kUint5
  // w = scale * s * (q - 32), q in 0..63, s for each half of a block: [panel][super-block]{float16 scale[16], unused[16];
  // [block] int8 s[2][16]; [block]{low; uint8 [2][16][4], two bits for each of inputs 16i + 4j... in bits 2j and 2j+1}}.
  kUint6K = 8,
  // The same values as without tiles, [panel][block]{uint16 [16][32]}, multiplied with rows in bfloat16; where the kernels
  // have matmul_tiled and rows are a multiple of 32.
  kBFloat16Tiles = 9,
  kFloat16Tiles = 10,
  // w = scale * (q - 8), q in 0..15, multiplied with rows in bfloat16 as those are; see int4_panel.h.
  kInt4Tiles = 11,
  kInt4OffsetTiles = 12,  // the same plus an offset for each block
};

// Whether a matrix is multiplied in float32, its values being converted in registers.
static inline bool is_float(Format format) {
  return format == Format::kFloat32 || format == Format::kBFloat16 || format == Format::kFloat16;
}
static inline bool is_int4_tiled(Format format) {
  return format == Format::kInt4Tiles || format == Format::kInt4OffsetTiles;
}
static inline bool is_tiled(Format format) {
  return format == Format::kBFloat16Tiles || format == Format::kFloat16Tiles || is_int4_tiled(format);
}
static inline int value_bytes(Format format) { return format == Format::kFloat32 ? 4 : 2; }

struct PackedMatrix {
  Format format = Format::kFloat32;
  int num_outputs = 0;
  int num_inputs = 0;
  const void* values = nullptr;
  // The panel, of whatever matrix, that this core most likely multiplies after the last one of a call; null: the one behind.
  const void* next_panel = nullptr;
};

static inline int num_panels(const PackedMatrix& w) { return (w.num_outputs + kPanel - 1) / kPanel; }
static inline int num_blocks(const PackedMatrix& w) { return w.num_inputs / kBlock; }
// Rows in bfloat16 hold the sums of their blocks behind these, as inputs of as many further blocks.
constexpr int num_sum_blocks(int num_blocks) { return (num_blocks + kBlock - 1) / kBlock; }
constexpr int num_paired_blocks(int num_blocks) { return num_blocks + num_sum_blocks(num_blocks); }

constexpr int kRowGroup = 16;  // rows of activations that lie together
// From so many rows on panels are multiplied by twos and threes; fewer wait for memory, which is asked for better one panel
// at a time (ADR 36).
constexpr int kRowsForPanels = 48;

// Activations in 8 bits with one scale per row and block of 32. A block of sixteen rows lies in one piece, so that a tile
// reads it from one address. The last group may have unused places.
struct QuantizedRows {
  int8_t* values;        // [group][block][16 rows][32]
  float* scales;         // [group][block][16 rows]
  float* sums;           // [group][block][16 rows]: scale * sum of the block's values
  // What formats with a bias start their sums from; null where no matrix has such a format.
  int32_t* corrections;       // [group][block][16 rows]: -128 * sum of the block's values
  int32_t* half_corrections;  // [group][block][2][16 rows]: -32 * sum of the half's values
  // What half as many products start from, see matmul_halved.h; where it isn't null, values are at most kHalvedSteps.
  int32_t* halved_starts = nullptr;  // [group][block][16 rows]
};

// Most whole steps of a block's largest magnitude in both of the roundings that are tried.
constexpr float kMostSteps[2] = {127.0f, 125.0f}, kHalvedSteps[2] = {120.0f, 118.0f};

// A block of a row whose rounding left something over, and that, rounded likewise.
struct alignas(64) RestBlock {
  int8_t values[kBlock];
  float scale, sum;             // sum: scale * sum of the values
  int32_t correction;           // -128 * sum of the values
  int32_t half_corrections[2];  // -32 * sum of the half's values
  int32_t block;
};

// Blocks of a row with a rest.
constexpr int num_rests(int num_blocks) { return (num_blocks + 7) / 8; }

constexpr int kMaxAttentionRows = 96;  // most num_queries * group of a task
constexpr int kMaxHeadDim = 1024;
constexpr int kAttentionChunk = 64;    // keys that are made floats at a time
constexpr int kPairedRows = 32;        // most rows whose scores over a cache in pairs are kept at once

// A few queries at neighbouring positions of one sequence, and the heads that share a KV head.
struct AttentionTask {
  const float* query;           // [num_queries][query_stride], `group` heads of head_dim side by side
  float* out;                   // [num_queries][out_stride], likewise
  int64_t query_stride, out_stride;
  const uint8_t* pieces;        // this KV head's piece of block 0; see kv_layout.h
  int64_t block_bytes;          // from one block's piece to the next one's
  KvLayout layout;
  const int32_t* block_table;
  int num_queries, group;
  int first_num_keys;           // keys that the first query sees; each later one sees one more
  float scale;
  // What this core most likely attends to next: the first of its keys are asked for in time.
  const uint8_t* next_pieces = nullptr;
  const int32_t* next_block_table = nullptr;
  int next_num_keys = 0;
};

static inline int64_t attention_score_stride(const AttentionTask& task) {
  return (task.first_num_keys + task.num_queries - 1 + kPanel - 1) / kPanel * kPanel;
}

// Floats of scratch that a task of num_rows rows and at most num_keys keys needs.
static inline int64_t attention_scratch(int num_rows, int64_t num_keys, const KvLayout& layout) {
  if (layout.in_pairs) {
    const int64_t chunks = (num_keys + 4 * kPanel - 1) / (4 * kPanel) * 4;  // scored two or four at a time
    const int64_t scores_and_weights = chunks * (kPanel + 1) * kPanel * 3 / 2;
    const int64_t queries_and_outputs = int64_t(kPanel) * layout.head_dim * 3 / 2;
    const int64_t last_values = int64_t(kPanel) * layout.head_dim / 2;
    return kPairedRows / kPanel * (scores_and_weights + queries_and_outputs) + last_values;
  }
  return num_rows * ((num_keys + kPanel - 1) / kPanel * kPanel) + int64_t(kAttentionChunk) * layout.head_dim;
}

static inline float attention_scale(int head_dim) { return 1.0f / __builtin_sqrtf(float(head_dim)); }

constexpr int kSpan = 128;  // tokens of a vocabulary that the draw sums and compares as one

// How the draw turns scores into weights.
struct WeightRule {
  float peak;                 // the row's largest score
  float inverse_temperature;
  float least;                // smaller weights become 0
};

// Tokens side by side: [size] each. Without ids they are those of a whole row: 0, 1, 2, ...
struct TokenColumns {
  int32_t* ids;
  float* scores;
  float* weights;
};

// What gather_tokens found: how many tokens, their weights' sum, and that of the tokens above them.
struct GatheredTokens {
  int count;
  double inside, above;
};

struct KernelTable {
  const char* name;
  // Quantises num_blocks blocks of x [num_rows][stride] into rows first_row... and blocks first_block... of rows that have
  // blocks_a_row; see quantize_rows.h. Whole groups at once are fastest.
  void (*quantize_blocks)(const float* x, int64_t stride, int num_rows, int num_blocks, const QuantizedRows& out,
                          int blocks_a_row, int first_row, int first_block);
  // y[row][output] for panels first..last-1 of a kUint4 or kUint8 matrix; y has `stride` floats a row.
  void (*matmul_quantized)(const PackedMatrix& w, const QuantizedRows& x, int num_rows, int first_panel,
                           int last_panel, float* y, int64_t stride);
  // Adds to these y the products of the rows' rests [num_rows][num_rests(num_blocks)], each row's in ascending order of
  // blocks; see rest_blocks.h.
  void (*add_rests)(const PackedMatrix& w, const RestBlock* rests, int num_rows, int first_panel, int last_panel, float* y,
                    int64_t stride);
  // The same as matmul_quantized for a matrix in float and float rows.
  void (*matmul_float)(const PackedMatrix& w, const float* x, int num_rows, int first_panel, int last_panel, float* y,
                       int64_t stride);
  // The same in bfloat16, for a format that is_tiled; null where there are no such kernels. pair_blocks rounds
  // x as quantize_blocks does, into pairs [group of 16 rows][block][16 pairs of inputs][16 rows][2], behind which the
  // blocks' sums lie as num_sum_blocks further blocks. Unused rows may hold anything, unused places of sums must be 0.
  void (*pair_blocks)(const float* x, int64_t stride, int num_rows, int num_blocks, uint16_t* pairs, int blocks_a_row,
                      int first_row, int first_block);
  void (*matmul_tiled)(const PackedMatrix& w, const uint16_t* pairs, int num_rows, int first_panel, int last_panel,
                       float* y, int64_t stride);
  // The same products as the tiles that they are, [group of 16 rows][panel][16 outputs][16 rows]; unused places hold
  // anything.
  void (*matmul_into_tiles)(const PackedMatrix& w, const uint16_t* pairs, int num_rows, int first_panel, int last_panel,
                            float* tiles);
  // silu(gate) * up of num_blocks blocks that lie so, [group][block][32 inputs][16 rows], rounded into pairs.
  void (*gate_tiles)(const float* gate, const float* up, int num_rows, int num_blocks, uint16_t* pairs, int blocks_a_row,
                     int first_block);
  // out = x / rms(x) * weight (Zhang and Sennrich, arXiv 1910.07467).
  void (*rms_norm)(const float* x, const float* weight, int size, float epsilon, float* out);
  // x += delta, then the same. `next` is how many floats later the row lies that comes next; 0 if none does.
  void (*add_rms_norm)(float* x, const float* delta, const float* weight, int size, float epsilon, float* out,
                       int64_t next);
  // out[i] = silu(gate[i]) * up[i] (Shazeer, arXiv 2002.05202); out may be gate.
  void (*swiglu)(const float* gate, const float* up, int size, float* out);
  // Attention of a task's queries; scratch: see attention_scratch.
  void (*attention)(const AttentionTask& task, float* scratch);
  // Writes key and value [head_dim] of one token and head into `slot` of a piece, rounded to the cache's precision.
  void (*store_kv)(const KvLayout& layout, uint8_t* piece, int slot, const float* key, const float* value);
  // The draw's passes over scores [size]; see draw_kernels.h.
  void (*span_largest)(const float* scores, int size, float* largest);
  void (*weigh_scores)(const float* scores, int size, const WeightRule& rule, float* out);
  void (*span_sums)(const float* scores, int size, const WeightRule& rule, double* running, float* weights);
  // The fastest integer dot products there are, for `rounds` rounds; returns the operations done.
  int64_t (*integer_burst)(int64_t rounds);
  // out = e^x / sum(e^x) for [size].
  void (*softmax)(const float* x, int size, float* out);
  // Rotates the heads of one token to its position.
  void (*rope)(const float* x, const float* cosines, const float* sines, int num_heads, int head_dim, float* out);
  // Whether attention multiplies pairs of bfloat16 where the cache allows it; see kv_layout.
  bool attends_in_pairs;
  // Copies the tokens with scores above `under` and up to `high`; see draw_kernels.h.
  GatheredTokens (*gather_tokens)(const TokenColumns& from, int size, const float* largest, float under, float high,
                                  const TokenColumns& to);
  // The order of a few scores, best first; see draw_kernels.h.
  void (*order_scores)(float* scores, int size, int32_t* order);
  // The same as integer_burst with products of bfloat16 and of float32, and what does them; the first returns 0 on a
  // processor without such an instruction.
  int64_t (*bfloat16_burst)(int64_t rounds);
  int64_t (*float_burst)(int64_t rounds);
  const char* bfloat16_instruction;
  const char* float_instruction;
  // Whether products with integers of four bits take half as many multiplications; see is_halved.
  bool halves_products;
};

constexpr bool is_uint4(Format format) { return format == Format::kUint4 || format == Format::kUint4K; }
// Whether rows that meet such a matrix are rounded to kHalvedSteps, with halved_starts.
constexpr bool is_halved(const KernelTable& kernels, Format format) { return kernels.halves_products && is_uint4(format); }

const KernelTable* portable_kernels();
const KernelTable* avx2_kernels();    // nullptr when not built
const KernelTable* avx512_kernels();  // nullptr when not built
const KernelTable* avx512_bf16_kernels();  // nullptr when not built; AVX-512 with dot products of bfloat16
const KernelTable* amx_kernels();     // nullptr when not built; AVX-512 with products in tile registers

}  // namespace pellucid
