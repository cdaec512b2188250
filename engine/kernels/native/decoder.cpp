#include "decoder.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <stdexcept>

namespace pellucid {
namespace {

// (query, head) pairs of an item of attention: 8 or, in pairs, 32 queries of 3 heads.
constexpr int kAttentionRows = 24, kPairedAttentionRows = 96;

AlignedMemory float_rows(int64_t rows, int64_t width, MemoryArena* arena) {
  return AlignedMemory(size_t(rows * width) * sizeof(float), arena);
}

// Whether some rows need no logits and the others are named once, in their order.
bool leaves_rows_out(const PellucidBatch& batch) {
  const int64_t* const end = batch.logits_rows + batch.num_logits;
  return batch.num_logits < batch.num_tokens &&
         std::adjacent_find(batch.logits_rows, end, std::greater_equal<int64_t>()) == end;
}

}  // namespace

Decoder::Decoder(const PellucidDecoderShape& shape, const float* cosines, const float* sines,
                 const KernelTable* kernels)
    : shape_(shape), kernels_(kernels), team_(std::max(1, shape.num_threads)) {
  const int half = shape.head_dim / 2;
  cosines_.assign(cosines, cosines + int64_t(shape.max_positions) * half);
  sines_.assign(sines, sines + int64_t(shape.max_positions) * half);
  layers_.resize(size_t(shape.num_layers));
  if (shape.head_dim > kMaxHeadDim) throw std::invalid_argument("heads are too wide");
  kv_layout_ = kv_layout(KvFormat(shape.kv_format), shape.head_dim, shape.block_size, kernels->attends_in_pairs);
  kv_block_bytes_ = int64_t(shape.num_layers) * shape.num_kv_heads * kv_layout_.piece_bytes();
  kv_pool_ = AlignedMemory(size_t(shape.num_blocks) * size_t(kv_block_bytes_));
  const int64_t rows = shape.max_tokens, q_size = int64_t(shape.num_heads) * shape.head_dim;
  const int64_t kv_size = int64_t(shape.num_kv_heads) * shape.head_dim;
  residual_ = float_rows(rows, shape.hidden_size, &arena_);
  delta_ = float_rows(rows, shape.hidden_size, &arena_);
  qkv_ = float_rows(rows, q_size + 2 * kv_size, &arena_);
  make_inputs(hidden_inputs_, rows, shape.hidden_size);
  make_inputs(attended_inputs_, rows, int(q_size));
  make_inputs(inner_inputs_, rows, shape.intermediate_size);
  make_inputs(head_inputs_, rows, shape.hidden_size);
  rests_ = AlignedMemory(size_t(rows * num_rests(head_inputs_.num_blocks())) * sizeof(RestBlock), &arena_);
  const int group = shape.num_heads / shape.num_kv_heads;
  if (group > kMaxAttentionRows) throw std::invalid_argument("too many query heads share a KV head");
  queries_per_tile_ = std::max(1, (kv_layout_.in_pairs ? kPairedAttentionRows : kAttentionRows) / group);
  tiles_.reserve(size_t(rows));
  last_tiles_.reserve(size_t(rows));
  const int64_t scratch = attention_scratch(queries_per_tile_ * group, shape.max_positions, kv_layout_);
  const int64_t places = (rows + kRowGroup - 1) / kRowGroup * kRowGroup;
  gate_scratch_size_ = 2 * kBlock * std::max(places, int64_t(kRowGroup) * kMostBlocksPerItem);
  for (int i = 0; i < team_.size(); ++i) {
    attention_scratch_.push_back(float_rows(1, scratch, &arena_));
    gate_scratch_.push_back(float_rows(1, gate_scratch_size_, &arena_));
  }
}

void Decoder::make_inputs(Inputs& inputs, int64_t num_rows, int width) {
  inputs.width = width;
  inputs.floats = float_rows(num_rows, width, &arena_);
  inputs.quantized = OwnedRows(num_rows, width / kBlock * kBlock, &arena_);
  const QuantizedRows& all = inputs.quantized.view;
  inputs.view = {all.values, all.scales, all.sums, nullptr, nullptr};
  const int64_t places = (num_rows + kRowGroup - 1) / kRowGroup * kRowGroup;
  const int64_t paired = num_paired_blocks(width / kBlock) * kBlock;
  if (kernels_->pair_blocks) inputs.pairs = AlignedMemory(size_t(places * paired) * sizeof(uint16_t), &arena_);
}

void Decoder::set_weight(const std::string& name, const std::string& encoding, const uint8_t* data, int64_t num_rows,
                         int64_t num_columns) {
  const int hidden = shape_.hidden_size, q_size = shape_.num_heads * shape_.head_dim;
  const int kv_size = shape_.num_kv_heads * shape_.head_dim, inner = shape_.intermediate_size;
  auto matrix = [&](OwnedMatrix& target, int outputs, Inputs& inputs) {
    if (num_rows != outputs || num_columns != inputs.width) throw std::invalid_argument(name + " has the wrong shape");
    const Format format = format_of(*kernels_, encoding, inputs.width);
    inputs.needs_floats |= is_float(format);
    inputs.needs_pairs |= is_tiled(format);
    inputs.needs_quantized |= !is_tiled(format) && !is_float(format);
    if (format == Format::kUint8) inputs.view.corrections = inputs.quantized.view.corrections;
    if (is_halved(*kernels_, format)) inputs.view.halved_starts = inputs.quantized.view.halved_starts;
    if (format == Format::kUint6K) inputs.view.half_corrections = inputs.quantized.view.half_corrections;
    allocate_matrix(target, format, outputs, inputs.width, &arena_);
    pack_rows(target, encoding, data, 0, outputs);
  };
  auto vector = [&](std::vector<float>& target, int size) {
    if (num_rows * num_columns != size) throw std::invalid_argument(name + " has the wrong shape");
    if (encoding != "F32") throw std::invalid_argument(name + " must be float32");
    target.resize(size_t(size));
    std::memcpy(target.data(), data, size_t(size) * sizeof(float));
  };
  seen_.push_back(name);
  if (name == "embed.weight") return matrix(embed_, shape_.vocab_size, head_inputs_);
  if (name == "head.weight") return matrix(head_, shape_.vocab_size, head_inputs_);
  if (name == "final_norm.weight") return vector(final_norm_, hidden);
  if (name.rfind("layers.", 0) == 0) {
    const size_t dot = name.find('.', 7);
    const int index = std::stoi(name.substr(7, dot - 7));
    if (index < 0 || index >= shape_.num_layers) throw std::invalid_argument(name + " is past the last layer");
    Layer& layer = layers_[size_t(index)];
    const std::string part = name.substr(dot + 1);
    if (part == "attn_norm.weight") return vector(layer.attn_norm, hidden);
    if (part == "mlp_norm.weight") return vector(layer.mlp_norm, hidden);
    if (part == "q.weight") return matrix(layer.q, q_size, hidden_inputs_);
    if (part == "k.weight") return matrix(layer.k, kv_size, hidden_inputs_);
    if (part == "v.weight") return matrix(layer.v, kv_size, hidden_inputs_);
    if (part == "o.weight") return matrix(layer.o, hidden, attended_inputs_);
    if (part == "q.bias") return vector(layer.q_bias, q_size);
    if (part == "k.bias") return vector(layer.k_bias, kv_size);
    if (part == "v.bias") return vector(layer.v_bias, kv_size);
    if (part == "q_norm.weight") return vector(layer.q_norm, shape_.head_dim);
    if (part == "k_norm.weight") return vector(layer.k_norm, shape_.head_dim);
    if (part == "gate.weight") return matrix(layer.gate, inner, hidden_inputs_);
    if (part == "up.weight") return matrix(layer.up, inner, hidden_inputs_);
    if (part == "down.weight") return matrix(layer.down, hidden, inner_inputs_);
  }
  throw std::invalid_argument("unknown weight " + name);
}

void Decoder::check_complete() const {
  const int per_layer = 9 + (shape_.qkv_bias ? 3 : 0) + (shape_.qk_norm ? 2 : 0);
  const size_t expected = size_t(2 + (shape_.tie_word_embeddings ? 0 : 1) + per_layer * shape_.num_layers);
  std::vector<std::string> names = seen_;
  std::sort(names.begin(), names.end());
  if (std::adjacent_find(names.begin(), names.end()) != names.end()) throw std::logic_error("a weight was set twice");
  if (names.size() != expected) throw std::logic_error("weights are missing");
}

void Decoder::forward(const PellucidBatch& batch, float* logits, PellucidObserver observer) {
  if (!complete_) check_complete();
  complete_ = true;
  if (batch.num_tokens > shape_.max_tokens) throw std::invalid_argument("more tokens than the step's scratch holds");
  if (batch.num_tokens == 0) return;
  // Sixteen rows of activations lie together, and tokens of a block: what one thread writes, another had better not.
  step_ = {&batch, logits, observer, batch.num_tokens <= 8 ? 2 : batch.num_tokens < 32 ? 8 : 16,
           observer || !leaves_rows_out(batch)};
  plan_attention(batch);
  team_.run(*this, num_phases());
}

int Decoder::num_items(int phase) const {
  const PellucidBatch& batch = *step_.batch;
  if (phase == 0) return batch.num_copies ? shape_.num_layers : 0;
  if (phase == 1) return num_row_items(batch.num_tokens);
  if (phase == num_phases() - 3) return num_row_items(batch.num_logits);
  if (phase == num_phases() - 1) return step_.observer ? 1 : 0;
  if (phase == num_phases() - 2) {
    const Products head = head_products();
    return batch.num_logits ? (total_panels(head) + panels_per_item(head) - 1) / panels_per_item(head) : 0;
  }
  const int layer = (phase - 2) / kLayerPhases;
  switch ((phase - 2) % kLayerPhases) {
    case kObserve: return step_.observer && layer > 0 ? 1 : 0;
    case kNorm:
    case kRotate: return num_row_items(batch.num_tokens);
    case kAttend: return int(tiles_of(layer).size()) * shape_.num_kv_heads;
    case kRound: return rounds_attended() ? 0 : num_row_items(rows_that_go_on(layer));
    case kMlpNorm: return num_row_items(rows_that_go_on(layer));
    case kActivate: {
      const int rows = rows_that_go_on(layer), wide = blocks_per_item(rows) * kBlock;
      return rows ? (shape_.intermediate_size + wide - 1) / wide : 0;
    }
    default: {
      const Products products = products_of(layer, (phase - 2) % kLayerPhases);
      return products.num_rows ? (total_panels(products) + panels_per_item(products) - 1) / panels_per_item(products) : 0;
    }
  }
}

void Decoder::run_item(int phase, int item, int thread) {
  const int last = num_phases() - 1;
  if (phase == 0) return copy_blocks(item);
  if (phase == last) return observe_last_layer();
  if (phase == last - 1) return multiply_head(item, thread);
  if (phase > 1 && phase < last - 2) {
    return run_layer_item((phase - 2) / kLayerPhases, (phase - 2) % kLayerPhases, item, thread);
  }
  const int num_rows = phase == 1 ? step_.batch->num_tokens : step_.batch->num_logits;
  const int first = item * step_.rows_per_item, stop = std::min(num_rows, first + step_.rows_per_item);
  for (int row = first; row < stop; ++row) phase == 1 ? embed(row) : normalise_logits_row(row);
  if (phase > 1) round_head_rows(first, stop - first);
}

void Decoder::run_layer_item(int index, int phase, int item, int thread) {
  Layer& layer = layers_[size_t(index)];
  switch (phase) {
    case kObserve:
      return step_.observer(index - 1, floats(residual_), step_.batch->num_tokens, shape_.hidden_size);
    case kAttend: return attend(index, item, thread);
    case kActivate: return activate(index, item, thread);
    case kQkv:
    case kO:
    case kDown: return multiply(products_of(index, phase), item);
    default: break;
  }
  const int num_rows = phase == kNorm || phase == kRotate ? step_.batch->num_tokens : rows_that_go_on(index);
  const int first = item * step_.rows_per_item, stop = std::min(num_rows, first + step_.rows_per_item);
  if (phase == kRound) return round_rows(attended_inputs_, first, stop - first);
  for (int row = first; row < stop; ++row) {
    const int next = row + 1 == stop ? 0 : shape_.hidden_size;
    switch (phase) {
      case kNorm: add_and_normalise(layer.attn_norm, index > 0, row, row, next); break;
      case kRotate: rotate_and_store(index, row); break;
      default: add_and_normalise(layer.mlp_norm, true, row, token_row(index, row), next); break;
    }
  }
  if (phase != kRotate) round_rows(hidden_inputs_, first, stop - first);
}

void Decoder::plan_attention(const PellucidBatch& batch) {
  tiles_.clear();
  last_tiles_.clear();
  int logits_row = 0;
  for (int seq = 0; seq < batch.num_seqs; ++seq) {
    const int stop = batch.query_start[seq + 1];
    for (int row = batch.query_start[seq]; row < stop; row += queries_per_tile_) {
      tiles_.push_back({seq, row, row, std::min(queries_per_tile_, stop - row)});
    }
    for (; !step_.keeps_all && logits_row < batch.num_logits && batch.logits_rows[logits_row] < stop; ++logits_row) {
      last_tiles_.push_back({seq, int32_t(batch.logits_rows[logits_row]), logits_row, 1});
    }
  }
}

}  // namespace pellucid
