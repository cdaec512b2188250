// A decoder-only transformer over a paged KV cache: one call runs a whole ragged step.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "kernel_table.h"
#include "packed_weights.h"
#include "phase_team.h"

extern "C" {

// Mirrors DecoderSpec and the pool's shape; see native_executor.py.
struct PellucidDecoderShape {
  int32_t vocab_size, hidden_size, intermediate_size, num_layers, num_heads, num_kv_heads, head_dim;
  int32_t max_positions, qkv_bias, qk_norm, tie_word_embeddings;
  int32_t num_blocks, block_size, max_tokens, num_threads, kv_format;
  float norm_epsilon;
};

// Mirrors ForwardBatch; every array is contiguous.
struct PellucidBatch {
  int32_t num_tokens, num_seqs, max_blocks, num_logits, num_copies;
  const int64_t* token_ids;
  const int64_t* positions;
  const int64_t* slot_mapping;
  const int32_t* query_start;
  const int32_t* block_tables;
  const int64_t* logits_rows;
  const int64_t* block_copies;
};

// Called after every layer, by any of the team's threads; residual is [num_tokens][hidden_size].
typedef void (*PellucidObserver)(int32_t layer, const float* residual, int32_t num_tokens, int32_t hidden_size);
}

namespace pellucid {

constexpr int kFewTokens = 8, kMostBlocksPerItem = 6;  // up to so many tokens, items of up to so many blocks

inline float* floats(const AlignedMemory& memory) { return reinterpret_cast<float*>(memory.data()); }

class Decoder final : private PhasedWork {
 public:
  Decoder(const PellucidDecoderShape& shape, const float* cosines, const float* sines, const KernelTable* kernels);

  // Takes one canonical weight; throws std::invalid_argument for a name, shape or encoding it doesn't know.
  void set_weight(const std::string& name, const std::string& encoding, const uint8_t* data, int64_t num_rows,
                  int64_t num_columns);

  // Runs the step; logits is [num_logits][vocab_size].
  void forward(const PellucidBatch& batch, float* logits, PellucidObserver observer);

 private:
  struct Layer {
    std::vector<float> attn_norm, mlp_norm, q_bias, k_bias, v_bias, q_norm, k_norm;
    OwnedMatrix q, k, v, o, gate, up, down;
  };
  // Phases of a step: copies and embedding; kLayerPhases for every layer; final norm, head and the last observation.
  enum LayerPhase { kNorm, kObserve, kQkv, kRotate, kAttend, kRound, kO, kMlpNorm, kActivate, kDown, kLayerPhases };
  // Rows that products read, in the forms that some matrix needs.
  struct Inputs {
    int width = 0;
    bool needs_floats = false, needs_quantized = false, needs_pairs = false;
    AlignedMemory floats;  // [row][width]
    OwnedRows quantized;
    QuantizedRows view{};  // quantized, the corrections that no format needs being null
    AlignedMemory pairs;

    int num_blocks() const { return width / kBlock; }
  };
  // One matrix product of a phase: every row of the input against `matrix`.
  struct Product {
    const OwnedMatrix* matrix;
    float* out;
    int64_t stride;
  };
  struct Products {
    Product product[3];
    int count;
    const Inputs* inputs;
    int num_rows;
    int most_panels = 32;  // of an item
  };
  // Neighbouring token rows of one sequence, and where their results go.
  struct AttentionTile {
    int32_t seq, first_row, out_row, num_queries;
  };
  // The step that runs.
  struct Step {
    const PellucidBatch* batch = nullptr;
    float* logits = nullptr;
    PellucidObserver observer = nullptr;
    int rows_per_item = 1;
    bool keeps_all = true;  // every token goes through the whole last layer, whether its logits are needed or not
  };

  int num_items(int phase) const override;
  void run_item(int phase, int item, int thread) override;
  int num_phases() const { return 5 + kLayerPhases * shape_.num_layers; }
  void run_layer_item(int index, int phase, int item, int thread);
  Products products_of(int layer, int phase) const;
  const OwnedMatrix& head_matrix() const { return shape_.tie_word_embeddings ? embed_ : head_; }
  Products head_products() const;
  int num_row_items(int num_rows) const { return (num_rows + step_.rows_per_item - 1) / step_.rows_per_item; }

  void check_complete() const;
  void plan_attention(const PellucidBatch& batch);
  void observe_last_layer();
  void copy_blocks(int layer);
  void embed(int row);
  bool is_trimmed(int layer) const { return !step_.keeps_all && layer == shape_.num_layers - 1; }
  const std::vector<AttentionTile>& tiles_of(int layer) const { return is_trimmed(layer) ? last_tiles_ : tiles_; }
  int rows_that_go_on(int layer) const;
  int token_row(int layer, int row) const;
  void add_and_normalise(const std::vector<float>& weight, bool add, int row, int token, int next);
  void normalise_logits_row(int index);
  bool rounds_attended() const;
  void make_inputs(Inputs& inputs, int64_t num_rows, int width);
  void round_rows(Inputs& inputs, int first_row, int num_rows);
  void round_head_rows(int first_row, int num_rows);
  RestBlock* rests_of(int row) const;
  void round_blocks(const float* x, int64_t stride, int num_rows, int num_blocks, Inputs& inputs, int first_row,
                    int first_block);
  void rotate_and_store(int layer, int row);
  void attend(int layer, int item, int thread);
  uint8_t* piece(int64_t block, int64_t layer, int64_t kv_head) const;
  int blocks_per_item(int num_rows) const;
  void activate(int layer, int item, int thread);
  bool activates_in_tiles(const Layer& layer) const;
  void activate_tiles(const PackedMatrix& gate, const PackedMatrix& up, int rows, float* scratch, int first_block);
  static int total_panels(const Products& products);
  static const void* panel_of(const Products& products, int index);
  int panels_per_item(const Products& products) const;
  // Of this thread's next item, if every other thread takes one meanwhile.
  int first_panel_of_next(int item, int panels_an_item) const { return (item + team_.size()) * panels_an_item; }
  void multiply(const Products& products, int item);
  bool adds_rests() const;
  void multiply_head(int item, int thread);
  void multiply_panels(const PackedMatrix& matrix, const Inputs& inputs, int num_rows, int first, int last, float* out,
                       int64_t stride) const;

  PellucidDecoderShape shape_;
  const KernelTable* kernels_;
  std::vector<float> cosines_, sines_;  // [max_positions][head_dim / 2]
  MemoryArena arena_;  // of all that follows
  std::vector<Layer> layers_;
  OwnedMatrix embed_, head_;
  std::vector<float> final_norm_;
  std::vector<std::string> seen_;
  bool complete_ = false;
  KvLayout kv_layout_;
  int64_t kv_block_bytes_ = 0;
  AlignedMemory kv_pool_;  // [block][layer][kv_head] pieces

  // Scratch, allocated once: rows are tokens of the step.
  AlignedMemory residual_, qkv_, delta_;
  Inputs hidden_inputs_, attended_inputs_, inner_inputs_, head_inputs_;
  AlignedMemory rests_;  // of head_inputs_
  std::vector<AttentionTile> tiles_, last_tiles_;  // of all tokens; of those with logits
  int queries_per_tile_ = 1;
  std::vector<AlignedMemory> attention_scratch_, gate_scratch_;  // one for each thread, gates' also for logits
  int64_t gate_scratch_size_ = 0;                                // in floats
  Step step_;
  PhaseTeam team_;
};

}  // namespace pellucid
