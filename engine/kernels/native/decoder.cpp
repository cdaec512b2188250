#include "decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace pellucid {
namespace {

// (query, head) pairs that share one pass over the keys: 8 or, in a tile, 5 queries of 3 heads.
constexpr int kAttentionRows = 24, kTiledAttentionRows = 16;

float* floats(const AlignedMemory& memory) { return reinterpret_cast<float*>(memory.data()); }

AlignedMemory float_rows(int64_t rows, int64_t width, MemoryArena* arena) {
  return AlignedMemory(size_t(rows * width) * sizeof(float), arena);
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
  kv_layout_ = kv_layout(KvFormat(shape.kv_format), shape.head_dim, shape.block_size, kernels->has_half_tiles);
  kv_block_bytes_ = int64_t(shape.num_layers) * shape.num_kv_heads * kv_layout_.piece_bytes();
  kv_pool_ = AlignedMemory(size_t(shape.num_blocks) * size_t(kv_block_bytes_));
  const int64_t rows = shape.max_tokens, q_size = int64_t(shape.num_heads) * shape.head_dim;
  const int64_t kv_size = int64_t(shape.num_kv_heads) * shape.head_dim;
  const int64_t widest = std::max<int64_t>({shape.hidden_size, q_size, shape.intermediate_size});
  residual_ = float_rows(rows, shape.hidden_size, &arena_);
  normed_ = float_rows(rows, shape.hidden_size, &arena_);
  delta_ = float_rows(rows, shape.hidden_size, &arena_);
  qkv_ = float_rows(rows, q_size + 2 * kv_size, &arena_);
  attended_ = float_rows(rows, q_size, &arena_);
  gate_up_ = float_rows(rows, std::max<int64_t>(2 * int64_t(shape.intermediate_size), shape.hidden_size), &arena_);
  activated_ = float_rows(rows, shape.intermediate_size, &arena_);
  quantized_ = OwnedRows(rows, widest / kBlock * kBlock, &arena_);
  layer_rows_ = head_rows_ = {quantized_.view.values, quantized_.view.scales, quantized_.view.sums, nullptr, nullptr};
  if (kernels->pair_row) pairs_ = AlignedMemory(size_t((rows + kRowGroup - 1) / kRowGroup * kRowGroup * widest) * 2, &arena_);
  const int group = shape.num_heads / shape.num_kv_heads;
  if (group > kMaxAttentionRows) throw std::invalid_argument("too many query heads share a KV head");
  queries_per_tile_ = std::max(1, (kv_layout_.in_pairs ? kTiledAttentionRows : kAttentionRows) / group);
  tiles_.reserve(size_t(rows));
  const int64_t scratch = attention_scratch(queries_per_tile_ * group, shape.max_positions, shape.head_dim);
  for (int i = 0; i < team_.size(); ++i) attention_scratch_.push_back(float_rows(1, scratch, &arena_));
}

void Decoder::set_weight(const std::string& name, const std::string& encoding, const uint8_t* data, int64_t num_rows,
                         int64_t num_columns) {
  const int hidden = shape_.hidden_size, q_size = shape_.num_heads * shape_.head_dim;
  const int kv_size = shape_.num_kv_heads * shape_.head_dim, inner = shape_.intermediate_size;
  auto matrix = [&](OwnedMatrix& target, int outputs, int inputs) {
    if (num_rows != outputs || num_columns != inputs) throw std::invalid_argument(name + " has the wrong shape");
    const Format format = format_of(*kernels_, encoding, inputs);
    needs_pairs_ |= is_tiled(format);
    needs_quantized_ |= !is_tiled(format) && !is_float(format);
    QuantizedRows& rows = outputs == shape_.vocab_size ? head_rows_ : layer_rows_;
    if (format == Format::kUint8) rows.corrections = quantized_.view.corrections;
    if (format == Format::kUint6K) rows.half_corrections = quantized_.view.half_corrections;
    allocate_matrix(target, format, outputs, inputs, &arena_);
    pack_rows(target, encoding, data, 0, outputs);
  };
  auto vector = [&](std::vector<float>& target, int size) {
    if (num_rows * num_columns != size) throw std::invalid_argument(name + " has the wrong shape");
    if (encoding != "F32") throw std::invalid_argument(name + " must be float32");
    target.resize(size_t(size));
    std::memcpy(target.data(), data, size_t(size) * sizeof(float));
  };
  seen_.push_back(name);
  if (name == "embed.weight") return matrix(embed_, shape_.vocab_size, hidden);
  if (name == "head.weight") return matrix(head_, shape_.vocab_size, hidden);
  if (name == "final_norm.weight") return vector(final_norm_, hidden);
  if (name.rfind("layers.", 0) == 0) {
    const size_t dot = name.find('.', 7);
    const int index = std::stoi(name.substr(7, dot - 7));
    if (index < 0 || index >= shape_.num_layers) throw std::invalid_argument(name + " is past the last layer");
    Layer& layer = layers_[size_t(index)];
    const std::string part = name.substr(dot + 1);
    if (part == "attn_norm.weight") return vector(layer.attn_norm, hidden);
    if (part == "mlp_norm.weight") return vector(layer.mlp_norm, hidden);
    if (part == "q.weight") return matrix(layer.q, q_size, hidden);
    if (part == "k.weight") return matrix(layer.k, kv_size, hidden);
    if (part == "v.weight") return matrix(layer.v, kv_size, hidden);
    if (part == "o.weight") return matrix(layer.o, hidden, q_size);
    if (part == "q.bias") return vector(layer.q_bias, q_size);
    if (part == "k.bias") return vector(layer.k_bias, kv_size);
    if (part == "v.bias") return vector(layer.v_bias, kv_size);
    if (part == "q_norm.weight") return vector(layer.q_norm, shape_.head_dim);
    if (part == "k_norm.weight") return vector(layer.k_norm, shape_.head_dim);
    if (part == "gate.weight") return matrix(layer.gate, inner, hidden);
    if (part == "up.weight") return matrix(layer.up, inner, hidden);
    if (part == "down.weight") return matrix(layer.down, hidden, inner);
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
  plan_attention(batch);
  // Sixteen rows of activations lie together, and tokens of a block: what one thread writes, another had better not.
  step_ = {&batch, logits, observer, batch.num_tokens <= 8 ? 2 : batch.num_tokens < 32 ? 8 : 16};
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
    case kAttend: return int(tiles_.size()) * shape_.num_kv_heads;
    case kQkv:
    case kO:
    case kGateUp:
    case kDown: {
      const Products products = products_of(layer, (phase - 2) % kLayerPhases);
      return (total_panels(products) + panels_per_item(products) - 1) / panels_per_item(products);
    }
    default: return num_row_items(batch.num_tokens);
  }
}

void Decoder::run_item(int phase, int item, int thread) {
  const int last = num_phases() - 1;
  if (phase == 0) return copy_blocks(item);
  if (phase == last) return observe_last_layer();
  if (phase == last - 1) return multiply(head_products(), item);
  if (phase > 1 && phase < last - 2) {
    return run_layer_item((phase - 2) / kLayerPhases, (phase - 2) % kLayerPhases, item, thread);
  }
  const int num_rows = phase == 1 ? step_.batch->num_tokens : step_.batch->num_logits;
  const int stop = std::min(num_rows, (item + 1) * step_.rows_per_item);
  const int first = item * step_.rows_per_item;
  for (int row = first; row < stop; ++row) phase == 1 ? embed(row) : normalise_logits_row(row);
  if (phase > 1) round_rows(floats(normed_), shape_.hidden_size, first, stop - first, head_rows_);
}

void Decoder::run_layer_item(int index, int phase, int item, int thread) {
  Layer& layer = layers_[size_t(index)];
  switch (phase) {
    case kObserve:
      return step_.observer(index - 1, floats(residual_), step_.batch->num_tokens, shape_.hidden_size);
    case kAttend: return attend(index, item, thread);
    case kQkv:
    case kO:
    case kGateUp:
    case kDown: return multiply(products_of(index, phase), item);
    default: break;
  }
  const int first = item * step_.rows_per_item, stop = std::min(step_.batch->num_tokens, first + step_.rows_per_item);
  for (int row = first; row < stop; ++row) {
    switch (phase) {
      case kNorm: add_and_normalise(layer.attn_norm, index > 0, row, row + 1 == stop); break;
      case kRotate: rotate_and_store(index, row); break;
      case kRound: break;
      case kMlpNorm: add_and_normalise(layer.mlp_norm, true, row, row + 1 == stop); break;
      default: activate(row, row + 1 == stop); break;
    }
  }
  switch (phase) {
    case kRotate: return;
    case kRound: return round_rows(floats(attended_), shape_.num_heads * shape_.head_dim, first, stop - first, layer_rows_);
    case kActivate: return round_rows(floats(activated_), shape_.intermediate_size, first, stop - first, layer_rows_);
    default: return round_rows(floats(normed_), shape_.hidden_size, first, stop - first, layer_rows_);
  }
}

Decoder::Products Decoder::products_of(int index, int phase) const {
  const Layer& layer = layers_[size_t(index)];
  const int64_t q_size = int64_t(shape_.num_heads) * shape_.head_dim;
  const int64_t kv_size = int64_t(shape_.num_kv_heads) * shape_.head_dim, qkv_size = q_size + 2 * kv_size;
  const int64_t inner = shape_.intermediate_size;
  const int rows = step_.batch->num_tokens;
  switch (phase) {
    case kQkv:
      return {{{&layer.q, floats(qkv_), qkv_size},
               {&layer.k, floats(qkv_) + q_size, qkv_size},
               {&layer.v, floats(qkv_) + q_size + kv_size, qkv_size}},
              3, floats(normed_), rows};
    case kO: return {{{&layer.o, floats(delta_), shape_.hidden_size}}, 1, floats(attended_), rows};
    case kGateUp:
      return {{{&layer.gate, floats(gate_up_), 2 * inner}, {&layer.up, floats(gate_up_) + inner, 2 * inner}},
              2, floats(normed_), rows};
    default: return {{{&layer.down, floats(delta_), shape_.hidden_size}}, 1, floats(activated_), rows};
  }
}

Decoder::Products Decoder::head_products() const {
  const OwnedMatrix& matrix = shape_.tie_word_embeddings ? embed_ : head_;
  return {{{&matrix, step_.logits, shape_.vocab_size}}, 1, floats(normed_), step_.batch->num_logits};
}

int Decoder::total_panels(const Products& products) {
  int total = 0;
  for (int i = 0; i < products.count; ++i) total += num_panels(products.product[i].matrix->view);
  return total;
}

int Decoder::panels_per_item(const Products& products) const {
  // Several items a thread, so that one that is late takes fewer; not so small that claiming shows.
  return std::max(1, std::min(32, total_panels(products) / (team_.size() * 4)));
}

void Decoder::multiply(const Products& products, int item) {
  const int grab = panels_per_item(products);
  int first = item * grab, last = std::min(total_panels(products), first + grab);
  for (int i = 0; i < products.count && last > 0; ++i) {
    const Product& product = products.product[i];
    const PackedMatrix& matrix = product.matrix->view;
    const int panels = num_panels(matrix), from = std::max(0, first), to = std::min(panels, last);
    if (from < to) {
      if (is_float(matrix.format)) {
        kernels_->matmul_float(matrix, products.x, products.num_rows, from, to, product.out, product.stride);
      } else if (is_tiled(matrix.format)) {
        const uint16_t* pairs = reinterpret_cast<const uint16_t*>(pairs_.data());
        kernels_->matmul_tiled(matrix, pairs, products.num_rows, from, to, product.out, product.stride);
      } else {
        kernels_->matmul_quantized(matrix, quantized_.view, products.num_rows, from, to, product.out, product.stride);
      }
    }
    first -= panels;
    last -= panels;
  }
}

void Decoder::embed(int row) {
  unpack_row(embed_.view, int(step_.batch->token_ids[row]), floats(residual_) + int64_t(row) * shape_.hidden_size);
}

void Decoder::observe_last_layer() {
  const int64_t count = int64_t(step_.batch->num_tokens) * shape_.hidden_size;
  for (int64_t j = 0; j < count; ++j) floats(residual_)[j] += floats(delta_)[j];
  step_.observer(shape_.num_layers - 1, floats(residual_), step_.batch->num_tokens, shape_.hidden_size);
}

uint8_t* Decoder::piece(int64_t block, int64_t layer, int64_t kv_head) const {
  return kv_pool_.data() + block * kv_block_bytes_ +
         (layer * shape_.num_kv_heads + kv_head) * kv_layout_.piece_bytes();
}

void Decoder::copy_blocks(int layer) {
  const PellucidBatch& batch = *step_.batch;
  const size_t layer_bytes = size_t(shape_.num_kv_heads * kv_layout_.piece_bytes());
  // In order: a block may be the source of one copy and the destination of a later one.
  for (int c = 0; c < batch.num_copies; ++c) {
    const int64_t source = batch.block_copies[2 * c], target = batch.block_copies[2 * c + 1];
    std::memcpy(piece(target, layer, 0), piece(source, layer, 0), layer_bytes);
  }
}

void Decoder::add_and_normalise(const std::vector<float>& weight, bool add, int row, bool is_last) {
  const int hidden = shape_.hidden_size;
  float* x = floats(residual_) + int64_t(row) * hidden;
  float* out = floats(normed_) + int64_t(row) * hidden;
  if (!add) return kernels_->rms_norm(x, weight.data(), hidden, shape_.norm_epsilon, out);
  const float* delta = floats(delta_) + int64_t(row) * hidden;
  kernels_->add_rms_norm(x, delta, weight.data(), hidden, shape_.norm_epsilon, out, is_last ? 0 : hidden);
}

void Decoder::normalise_logits_row(int index) {
  // Rows that need logits are gathered to the front, each after its own last residual; gate_up_ is free by now.
  const int64_t hidden = shape_.hidden_size, row = step_.batch->logits_rows[index];
  const float* residual = floats(residual_) + row * hidden;
  const float* delta = floats(delta_) + row * hidden;
  float* x = floats(gate_up_) + index * hidden;
  for (int64_t j = 0; j < hidden; ++j) x[j] = residual[j] + delta[j];
  kernels_->rms_norm(x, final_norm_.data(), int(hidden), shape_.norm_epsilon, floats(normed_) + index * hidden);
}

void Decoder::round_rows(const float* x, int width, int first_row, int num_rows, const QuantizedRows& rows) {
  if (width % kBlock) return;  // such a matrix takes float rows
  x += int64_t(first_row) * width;
  if (needs_quantized_) kernels_->quantize_rows(x, width, num_rows, rows, first_row);
  for (int i = 0; needs_pairs_ && i < num_rows; ++i) {
    kernels_->pair_row(x + int64_t(i) * width, width, reinterpret_cast<uint16_t*>(pairs_.data()), first_row + i);
  }
}

void Decoder::activate(int row, bool is_last) {
  const int64_t inner = shape_.intermediate_size;
  const float* gate = floats(gate_up_) + row * 2 * inner;
  kernels_->swiglu(gate, gate + inner, int(inner), floats(activated_) + row * inner, is_last ? 0 : 2 * inner);
}

void Decoder::rotate_and_store(int index, int row) {
  const Layer& layer = layers_[size_t(index)];
  const PellucidBatch& batch = *step_.batch;
  const int dim = shape_.head_dim, half = dim / 2, heads = shape_.num_heads, kv_heads = shape_.num_kv_heads;
  const int64_t width = int64_t(heads + 2 * kv_heads) * dim;
  const int block_size = shape_.block_size;
  float* q = floats(qkv_) + row * width;
  float* k = q + int64_t(heads) * dim;
  float* v = k + int64_t(kv_heads) * dim;
  if (shape_.qkv_bias) {
    for (int j = 0; j < heads * dim; ++j) q[j] += layer.q_bias[size_t(j)];
    for (int j = 0; j < kv_heads * dim; ++j) k[j] += layer.k_bias[size_t(j)];
    for (int j = 0; j < kv_heads * dim; ++j) v[j] += layer.v_bias[size_t(j)];
  }
  const float* cosine = cosines_.data() + batch.positions[row] * half;
  const float* sine = sines_.data() + batch.positions[row] * half;
  for (int head = 0; shape_.qk_norm && head < heads + kv_heads; ++head) {
    float* x = q + int64_t(head) * dim;  // k follows q
    const float* weight = head < heads ? layer.q_norm.data() : layer.k_norm.data();
    kernels_->rms_norm(x, weight, dim, shape_.norm_epsilon, x);
  }
  kernels_->rope(q, cosine, sine, heads + kv_heads, dim, q);
  const int64_t block = batch.slot_mapping[row] / block_size;
  const int slot = int(batch.slot_mapping[row] % block_size);
  for (int head = 0; head < kv_heads; ++head) {
    kernels_->store_kv(kv_layout_, piece(block, index, head), slot, k + head * dim, v + head * dim);
  }
}

void Decoder::plan_attention(const PellucidBatch& batch) {
  tiles_.clear();
  for (int seq = 0; seq < batch.num_seqs; ++seq) {
    const int stop = batch.query_start[seq + 1];
    for (int row = batch.query_start[seq]; row < stop; row += queries_per_tile_) {
      tiles_.push_back({seq, row, std::min(queries_per_tile_, stop - row)});
    }
  }
}

void Decoder::attend(int layer, int item, int thread) {
  const PellucidBatch& batch = *step_.batch;
  const int64_t dim = shape_.head_dim, kv_heads = shape_.num_kv_heads, group = shape_.num_heads / kv_heads;
  const int64_t width = (shape_.num_heads + 2 * kv_heads) * dim, q_size = shape_.num_heads * dim;
  // Last tiles first: in a long prompt they see the most keys.
  const int place = int(tiles_.size()) * int(kv_heads) - 1 - item;
  const AttentionTile& tile = tiles_[size_t(place / kv_heads)];
  const int64_t head = place % kv_heads;
  AttentionTask task;
  task.query = floats(qkv_) + tile.first_row * width + head * group * dim;
  task.out = floats(attended_) + tile.first_row * q_size + head * group * dim;
  task.query_stride = width;
  task.out_stride = q_size;
  task.pieces = piece(0, layer, head);
  task.block_bytes = kv_block_bytes_;
  task.layout = kv_layout_;
  task.block_table = batch.block_tables + int64_t(tile.seq) * batch.max_blocks;
  task.num_queries = tile.num_queries;
  task.group = int(group);
  task.first_num_keys = int(batch.positions[tile.first_row]) + 1;
  task.scale = attention_scale(shape_.head_dim);
  kernels_->attention(task, floats(attention_scratch_[size_t(thread)]));
}

}  // namespace pellucid
