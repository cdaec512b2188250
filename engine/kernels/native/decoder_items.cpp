// What the items of a step's phases do.
#include "decoder.h"

#include <algorithm>
#include <cstring>

#include "rest_blocks.h"

namespace pellucid {

Decoder::Products Decoder::products_of(int index, int phase) const {
  const Layer& layer = layers_[size_t(index)];
  const int64_t q_size = int64_t(shape_.num_heads) * shape_.head_dim;
  const int64_t kv_size = int64_t(shape_.num_kv_heads) * shape_.head_dim, qkv_size = q_size + 2 * kv_size;
  const int rows = phase == kQkv ? step_.batch->num_tokens : rows_that_go_on(index);
  switch (phase) {
    case kQkv:
      return {{{&layer.q, floats(qkv_), qkv_size},
               {&layer.k, floats(qkv_) + q_size, qkv_size},
               {&layer.v, floats(qkv_) + q_size + kv_size, qkv_size}},
              3, &hidden_inputs_, rows};
    case kO: return {{{&layer.o, floats(delta_), shape_.hidden_size}}, 1, &attended_inputs_, rows};
    default: return {{{&layer.down, floats(delta_), shape_.hidden_size}}, 1, &inner_inputs_, rows};
  }
}

Decoder::Products Decoder::head_products() const {
  const int rows = step_.batch->num_logits;
  Products products{{{&head_matrix(), step_.logits, shape_.vocab_size}}, 1, &head_inputs_, rows};
  // An item's logits and a panel's width between rows fit in scratch.
  if (rows && adds_rests()) products.most_panels = int(std::min<int64_t>(32, gate_scratch_size_ / rows / kPanel - 1));
  return products;
}

int Decoder::total_panels(const Products& products) {
  int total = 0;
  for (int i = 0; i < products.count; ++i) total += num_panels(products.product[i].matrix->view);
  return total;
}

int Decoder::panels_per_item(const Products& products) const {
  // Several items a thread, so that one that is late takes fewer; not so small that claiming shows; as many for each, where
  // that doesn't halve them.
  // Tiles of weights go by twos, and panels whose products are halved.
  const Inputs& inputs = *products.inputs;
  const bool by_twos = inputs.needs_pairs || (inputs.view.halved_starts && products.num_rows >= kRowsForPanels);
  const int step = by_twos ? 2 : 1, total = total_panels(products);
  const int most = std::clamp(total / (team_.size() * 4) / step * step, step, products.most_panels);
  for (int grab = most; 2 * grab > most; grab -= step) {
    if ((total + grab - 1) / grab % team_.size() == 0) return grab;
  }
  return most;
}

const void* Decoder::panel_of(const Products& products, int index) {
  for (int i = 0; i < products.count; ++i) {
    const PackedMatrix& matrix = products.product[i].matrix->view;
    if (index < num_panels(matrix)) return panels_of(matrix, index, 1).values;
    index -= num_panels(matrix);
  }
  return nullptr;
}

void Decoder::multiply(const Products& products, int item) {
  const int grab = panels_per_item(products), stop = std::min(total_panels(products), (item + 1) * grab);
  int first = item * grab, before = 0;  // panels of the matrices before
  for (int i = 0; i < products.count && first < stop; ++i) {
    const Product& product = products.product[i];
    PackedMatrix matrix = product.matrix->view;
    const int after = before + num_panels(matrix), last = std::min(after, stop);
    if (first < last) {
      matrix.next_panel = panel_of(products, last < stop ? last : first_panel_of_next(item, grab));
      multiply_panels(matrix, *products.inputs, products.num_rows, first - before, last - before, product.out, product.stride);
      first = last;
    }
    before = after;
  }
}

bool Decoder::adds_rests() const {
  const Format format = head_matrix().view.format;
  return !is_float(format) && !is_tiled(format);
}

void Decoder::multiply_head(int item, int thread) {
  const Products products = head_products();
  if (!adds_rests()) return multiply(products, item);
  // Rows of logits lie so far apart that lines of many don't fit in a cache together: they meet their rests in scratch.
  const PackedMatrix& matrix = head_matrix().view;
  const int grab = panels_per_item(products), first = item * grab, count = std::min(grab, num_panels(matrix) - first);
  PackedMatrix panels = panels_of(matrix, first, count);
  panels.next_panel = panel_of(products, first_panel_of_next(item, grab));
  const int64_t stride = (count + 1) * kPanel;
  float* const found = floats(gate_scratch_[size_t(thread)]);
  multiply_panels(panels, head_inputs_, products.num_rows, 0, count, found, stride);
  kernels_->add_rests(panels, rests_of(0), products.num_rows, 0, count, found, stride);
  const size_t bytes = size_t(panels.num_outputs) * sizeof(float);
  for (int64_t row = 0; row < products.num_rows; ++row) {
    std::memcpy(step_.logits + row * shape_.vocab_size + first * kPanel, found + row * stride, bytes);
  }
}

void Decoder::multiply_panels(const PackedMatrix& matrix, const Inputs& inputs, int num_rows, int first, int last,
                              float* out, int64_t stride) const {
  if (is_float(matrix.format)) {
    kernels_->matmul_float(matrix, floats(inputs.floats), num_rows, first, last, out, stride);
  } else if (is_tiled(matrix.format)) {
    const uint16_t* pairs = reinterpret_cast<const uint16_t*>(inputs.pairs.data());
    kernels_->matmul_tiled(matrix, pairs, num_rows, first, last, out, stride);
  } else {
    kernels_->matmul_quantized(matrix, inputs.view, num_rows, first, last, out, stride);
  }
}

int Decoder::blocks_per_item(int num_rows) const {
  // Few rows are read past quickly: long stretches of weights then, but several items a thread.
  if (num_rows > kFewTokens) return 1;
  return std::clamp(shape_.intermediate_size / kBlock / (team_.size() * 4), 1, kMostBlocksPerItem);
}

void Decoder::activate(int index, int item, int thread) {
  // A block of inner activations needs as many outputs of gate and of up: they, their products and the block that is
  // rounded of them stay in this core's cache.
  const Layer& layer = layers_[size_t(index)];
  const int rows = rows_that_go_on(index), wide = blocks_per_item(rows) * kBlock, first = item * wide;
  const int width = std::min(wide, shape_.intermediate_size - first), panels = (width + kPanel - 1) / kPanel;
  float* gate = floats(gate_scratch_[size_t(thread)]);
  float* up = gate + int64_t(rows) * width;
  PackedMatrix gate_panels = panels_of(layer.gate.view, first / kPanel, panels);
  PackedMatrix up_panels = panels_of(layer.up.view, first / kPanel, panels);
  gate_panels.next_panel = up_panels.values;
  const int next = first_panel_of_next(item, wide / kPanel);
  if (next < num_panels(layer.gate.view)) up_panels.next_panel = panels_of(layer.gate.view, next, 1).values;
  if (activates_in_tiles(layer)) return activate_tiles(gate_panels, up_panels, rows, gate, first / kBlock);
  multiply_panels(gate_panels, hidden_inputs_, rows, 0, panels, gate, width);
  multiply_panels(up_panels, hidden_inputs_, rows, 0, panels, up, width);
  for (int row = 0; row < rows; row += kRowGroup) {
    const int count = std::min(kRowGroup, rows - row);
    float* active = gate + int64_t(row) * width;
    kernels_->swiglu(active, up + int64_t(row) * width, count * width, active);
    if (inner_inputs_.needs_floats) {
      for (int r = 0; r < count; ++r) {
        float* out = floats(inner_inputs_.floats) + int64_t(row + r) * inner_inputs_.width + first;
        std::memcpy(out, active + r * width, size_t(width) * sizeof(float));
      }
    }
    round_blocks(active, width, count, width / kBlock, inner_inputs_, row, first / kBlock);
  }
}

bool Decoder::activates_in_tiles(const Layer& layer) const {
  const Inputs& inner = inner_inputs_;
  return is_tiled(layer.gate.view.format) && is_tiled(layer.up.view.format) && inner.needs_pairs && !inner.needs_floats &&
         !inner.needs_quantized;
}

void Decoder::activate_tiles(const PackedMatrix& gate, const PackedMatrix& up, int rows, float* scratch, int first_block) {
  // Rows stay side by side in registers: what comes out of tiles goes into tiles.
  const int panels = num_panels(gate), count = (rows + kRowGroup - 1) / kRowGroup * kRowGroup * panels * kPanel;
  const uint16_t* pairs = reinterpret_cast<const uint16_t*>(hidden_inputs_.pairs.data());
  kernels_->matmul_into_tiles(gate, pairs, rows, 0, panels, scratch);
  kernels_->matmul_into_tiles(up, pairs, rows, 0, panels, scratch + count);
  uint16_t* inner = reinterpret_cast<uint16_t*>(inner_inputs_.pairs.data());
  const int blocks = panels * kPanel / kBlock;
  kernels_->gate_tiles(scratch, scratch + count, rows, blocks, inner, inner_inputs_.num_blocks(), first_block);
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

void Decoder::add_and_normalise(const std::vector<float>& weight, bool add, int row, int token, int next) {
  const int hidden = shape_.hidden_size;
  float* x = floats(residual_) + int64_t(token) * hidden;
  float* out = floats(hidden_inputs_.floats) + int64_t(row) * hidden;
  if (!add) return kernels_->rms_norm(x, weight.data(), hidden, shape_.norm_epsilon, out);
  const float* delta = floats(delta_) + int64_t(row) * hidden;
  kernels_->add_rms_norm(x, delta, weight.data(), hidden, shape_.norm_epsilon, out, next);
}

void Decoder::normalise_logits_row(int index) {
  // Rows that need logits are gathered to the front, each after its own last residual.
  const int64_t hidden = shape_.hidden_size, token = step_.batch->logits_rows[index];
  const float* residual = floats(residual_) + token * hidden;
  const float* delta = floats(delta_) + (step_.keeps_all ? token : index) * hidden;
  float* x = floats(head_inputs_.floats) + index * hidden;
  for (int64_t j = 0; j < hidden; ++j) x[j] = residual[j] + delta[j];
  kernels_->rms_norm(x, final_norm_.data(), int(hidden), shape_.norm_epsilon, x);
}

void Decoder::round_rows(Inputs& inputs, int first_row, int num_rows) {
  const float* x = floats(inputs.floats) + int64_t(first_row) * inputs.width;
  round_blocks(x, inputs.width, num_rows, inputs.num_blocks(), inputs, first_row, 0);
}

void Decoder::round_head_rows(int first_row, int num_rows) {
  round_rows(head_inputs_, first_row, num_rows);
  if (!adds_rests()) return;
  const Inputs& inputs = head_inputs_;
  const float* x = floats(inputs.floats) + int64_t(first_row) * inputs.width;
  round_rests(*kernels_, x, inputs.width, num_rows, inputs.num_blocks(), inputs.view, first_row, rests_of(first_row));
}

RestBlock* Decoder::rests_of(int row) const {
  return reinterpret_cast<RestBlock*>(rests_.data()) + int64_t(row) * num_rests(head_inputs_.num_blocks());
}

void Decoder::round_blocks(const float* x, int64_t stride, int num_rows, int num_blocks, Inputs& inputs, int first_row,
                           int first_block) {
  if (inputs.needs_quantized) {
    kernels_->quantize_blocks(x, stride, num_rows, num_blocks, inputs.view, inputs.num_blocks(), first_row, first_block);
  }
  if (inputs.needs_pairs) {
    uint16_t* pairs = reinterpret_cast<uint16_t*>(inputs.pairs.data());
    kernels_->pair_blocks(x, stride, num_rows, num_blocks, pairs, inputs.num_blocks(), first_row, first_block);
  }
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

// Nobody looks at what the last layer makes of tokens without logits, beyond their keys and values.
int Decoder::rows_that_go_on(int layer) const {
  return is_trimmed(layer) ? step_.batch->num_logits : step_.batch->num_tokens;
}

int Decoder::token_row(int layer, int row) const { return is_trimmed(layer) ? int(step_.batch->logits_rows[row]) : row; }

void Decoder::attend(int layer, int item, int thread) {
  const PellucidBatch& batch = *step_.batch;
  const int64_t dim = shape_.head_dim, kv_heads = shape_.num_kv_heads, group = shape_.num_heads / kv_heads;
  const int64_t width = (shape_.num_heads + 2 * kv_heads) * dim, q_size = shape_.num_heads * dim;
  // Last tiles first: in a long prompt they see the most keys.
  const std::vector<AttentionTile>& tiles = tiles_of(layer);
  const int place = int(tiles.size()) * int(kv_heads) - 1 - item;
  const AttentionTile& tile = tiles[size_t(place / kv_heads)];
  const int64_t head = place % kv_heads;
  AttentionTask task;
  task.query = floats(qkv_) + tile.first_row * width + head * group * dim;
  task.out = floats(attended_inputs_.floats) + tile.out_row * q_size + head * group * dim;
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
  const int next = place - team_.size();  // if the other threads take an item each meanwhile
  if (next >= 0) {
    const AttentionTile& next_tile = tiles[size_t(next / kv_heads)];
    task.next_pieces = piece(0, layer, next % kv_heads);
    task.next_block_table = batch.block_tables + int64_t(next_tile.seq) * batch.max_blocks;
    task.next_num_keys = int(batch.positions[next_tile.first_row]) + next_tile.num_queries;
  }
  kernels_->attention(task, floats(attention_scratch_[size_t(thread)]));
  if (!rounds_attended()) return;
  const int blocks = int(group * dim) / kBlock;
  round_blocks(task.out, q_size, tile.num_queries, blocks, attended_inputs_, tile.out_row, int(head) * blocks);
}

bool Decoder::rounds_attended() const {
  // As attention goes, where the heads of a KV head are whole blocks.
  return shape_.num_heads / shape_.num_kv_heads * shape_.head_dim % kBlock == 0;
}

}  // namespace pellucid
