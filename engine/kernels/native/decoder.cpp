#include "decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace pellucid {
namespace {

constexpr int kAttentionRows = 24;  // (query, head) pairs that share one pass over the keys; 8 queries of 3 heads

float* floats(const AlignedMemory& memory) { return reinterpret_cast<float*>(memory.data()); }

AlignedMemory float_rows(int64_t rows, int64_t width) { return AlignedMemory(size_t(rows * width) * sizeof(float)); }

}  // namespace

Decoder::Decoder(const PellucidDecoderShape& shape, const float* cosines, const float* sines,
                 const KernelTable* kernels)
    : shape_(shape), kernels_(kernels), team_(std::max(1, shape.num_threads)) {
  const int half = shape.head_dim / 2;
  cosines_.assign(cosines, cosines + int64_t(shape.max_positions) * half);
  sines_.assign(sines, sines + int64_t(shape.max_positions) * half);
  layers_.resize(size_t(shape.num_layers));
  const int64_t cache = int64_t(shape.num_blocks) * shape.block_size * shape.num_kv_heads * shape.head_dim;
  for (Layer& layer : layers_) {
    layer.keys = float_rows(1, cache);
    layer.values = float_rows(1, cache);
  }
  const int64_t rows = shape.max_tokens, q_size = int64_t(shape.num_heads) * shape.head_dim;
  const int64_t kv_size = int64_t(shape.num_kv_heads) * shape.head_dim;
  const int64_t widest = std::max<int64_t>({shape.hidden_size, q_size, shape.intermediate_size});
  residual_ = float_rows(rows, shape.hidden_size);
  normed_ = float_rows(rows, shape.hidden_size);
  delta_ = float_rows(rows, shape.hidden_size);
  qkv_ = float_rows(rows, q_size + 2 * kv_size);
  attended_ = float_rows(rows, q_size);
  gate_up_ = float_rows(rows, std::max<int64_t>(2 * int64_t(shape.intermediate_size), shape.hidden_size));
  activated_ = float_rows(rows, shape.intermediate_size);
  quantized_ = OwnedRows(rows, widest / kBlock * kBlock);
  const int group = shape.num_heads / shape.num_kv_heads;
  if (group > kMaxAttentionRows) throw std::invalid_argument("too many query heads share a KV head");
  queries_per_tile_ = std::max(1, kAttentionRows / group);
  tiles_.reserve(size_t(rows));
  const int64_t longest = (int64_t(shape.max_positions) + kPanel - 1) / kPanel * kPanel;
  for (int i = 0; i < team_.size(); ++i) scores_.push_back(float_rows(int64_t(queries_per_tile_) * group, longest));
}

void Decoder::set_weight(const std::string& name, const std::string& encoding, const uint8_t* data, int64_t num_rows,
                         int64_t num_columns) {
  const int hidden = shape_.hidden_size, q_size = shape_.num_heads * shape_.head_dim;
  const int kv_size = shape_.num_kv_heads * shape_.head_dim, inner = shape_.intermediate_size;
  auto matrix = [&](OwnedMatrix& target, int outputs, int inputs) {
    if (num_rows != outputs || num_columns != inputs) throw std::invalid_argument(name + " has the wrong shape");
    allocate_matrix(target, format_of(encoding, inputs), outputs, inputs);
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
  for (Counter& counter : counters_) counter.value.store(0, std::memory_order_relaxed);
  team_.run([&](int thread) { run_phases(thread, batch, logits, observer); });
}

void Decoder::run_phases(int thread, const PellucidBatch& batch, float* logits, PellucidObserver observer) {
  const int rows = batch.num_tokens;
  const int64_t q_size = int64_t(shape_.num_heads) * shape_.head_dim;
  const int64_t kv_size = int64_t(shape_.num_kv_heads) * shape_.head_dim, qkv_size = q_size + 2 * kv_size;
  const int64_t inner = shape_.intermediate_size;
  int phase = 0;
  // Counters are used in turn; the one of four phases ago is free, everyone has passed three barriers since.
  auto counter = [&]() -> std::atomic<int>& {
    if (thread == 0) next_counter(phase + 4).store(0, std::memory_order_relaxed);
    return next_counter(phase++);
  };

  copy_blocks(batch, thread);
  embed(batch, thread);
  team_.barrier();
  for (size_t i = 0; i < layers_.size(); ++i) {
    Layer& layer = layers_[i];
    normalise_rows(layer.attn_norm.data(), i == 0 ? nullptr : floats(delta_), rows, thread);
    team_.barrier();
    if (observer && i > 0) {
      if (thread == 0) observer(int32_t(i) - 1, floats(residual_), rows, shape_.hidden_size);
      team_.barrier();
    }
    const Product qkv[] = {{&layer.q, floats(qkv_), qkv_size},
                           {&layer.k, floats(qkv_) + q_size, qkv_size},
                           {&layer.v, floats(qkv_) + q_size + kv_size, qkv_size}};
    multiply(qkv, 3, floats(normed_), rows, counter());
    team_.barrier();
    rotate_and_store(layer, batch, thread);
    team_.barrier();
    attend(layer, batch, thread, counter());
    team_.barrier();
    quantize_rows(floats(attended_), int(q_size), rows, thread);
    team_.barrier();
    const Product o[] = {{&layer.o, floats(delta_), shape_.hidden_size}};
    multiply(o, 1, floats(attended_), rows, counter());
    team_.barrier();
    normalise_rows(layer.mlp_norm.data(), floats(delta_), rows, thread);
    team_.barrier();
    const Product gate_up[] = {{&layer.gate, floats(gate_up_), 2 * inner}, {&layer.up, floats(gate_up_) + inner, 2 * inner}};
    multiply(gate_up, 2, floats(normed_), rows, counter());
    team_.barrier();
    for (int row = thread; row < rows; row += team_.size()) {
      const float* gate = floats(gate_up_) + row * 2 * inner;
      kernels_->swiglu(gate, gate + inner, int(inner), floats(activated_) + row * inner);
    }
    quantize_rows(floats(activated_), int(inner), rows, thread);
    team_.barrier();
    const Product down[] = {{&layer.down, floats(delta_), shape_.hidden_size}};
    multiply(down, 1, floats(activated_), rows, counter());
    team_.barrier();
  }
  // Only rows that need logits go on; they are gathered to the front, each after its own last residual.
  for (int i = thread; i < batch.num_logits; i += team_.size()) {
    const int64_t row = batch.logits_rows[i];
    float* x = floats(gate_up_) + int64_t(i) * shape_.hidden_size;
    for (int j = 0; j < shape_.hidden_size; ++j) {
      x[j] = floats(residual_)[row * shape_.hidden_size + j] + floats(delta_)[row * shape_.hidden_size + j];
    }
    kernels_->rms_norm(x, final_norm_.data(), shape_.hidden_size, shape_.norm_epsilon,
                       floats(normed_) + int64_t(i) * shape_.hidden_size);
  }
  if (observer) {
    team_.barrier();
    if (thread == 0) {
      for (int64_t j = 0; j < int64_t(rows) * shape_.hidden_size; ++j) floats(residual_)[j] += floats(delta_)[j];
      observer(shape_.num_layers - 1, floats(residual_), rows, shape_.hidden_size);
    }
  }
  if (shape_.hidden_size % kBlock == 0) quantize_rows(floats(normed_), shape_.hidden_size, batch.num_logits, thread);
  team_.barrier();
  const Product head[] = {{shape_.tie_word_embeddings ? &embed_ : &head_, logits, shape_.vocab_size}};
  multiply(head, 1, floats(normed_), batch.num_logits, counter());
}

void Decoder::embed(const PellucidBatch& batch, int thread) {
  for (int row = thread; row < batch.num_tokens; row += team_.size()) {
    unpack_row(embed_.view, int(batch.token_ids[row]), floats(residual_) + int64_t(row) * shape_.hidden_size);
  }
}

void Decoder::copy_blocks(const PellucidBatch& batch, int thread) {
  if (batch.num_copies == 0) return;
  const int64_t block = int64_t(shape_.block_size) * shape_.num_kv_heads * shape_.head_dim;
  for (size_t i = size_t(thread); i < layers_.size(); i += size_t(team_.size())) {
    // In order: a block may be the source of one copy and the destination of a later one.
    for (int c = 0; c < batch.num_copies; ++c) {
      const int64_t source = batch.block_copies[2 * c], target = batch.block_copies[2 * c + 1];
      for (const AlignedMemory* cache : {&layers_[i].keys, &layers_[i].values}) {
        std::memcpy(floats(*cache) + target * block, floats(*cache) + source * block, size_t(block) * sizeof(float));
      }
    }
  }
}

void Decoder::normalise_rows(const float* weight, const float* residual_delta, int num_rows, int thread) {
  const int hidden = shape_.hidden_size;
  for (int row = thread; row < num_rows; row += team_.size()) {
    float* x = floats(residual_) + int64_t(row) * hidden;
    if (residual_delta) {
      const float* add = residual_delta + int64_t(row) * hidden;
      for (int j = 0; j < hidden; ++j) x[j] += add[j];
    }
    kernels_->rms_norm(x, weight, hidden, shape_.norm_epsilon, floats(normed_) + int64_t(row) * hidden);
  }
  if (hidden % kBlock == 0) quantize_rows(floats(normed_), hidden, num_rows, thread);
}

void Decoder::quantize_rows(const float* x, int width, int num_rows, int thread) {
  if (width % kBlock) return;  // such a matrix is float32
  for (int row = thread; row < num_rows; row += team_.size()) {
    kernels_->quantize_row(x + int64_t(row) * width, width, quantized_.view, row);
  }
}

void Decoder::multiply(const Product* products, int count, const float* x, int num_rows, std::atomic<int>& next) {
  int total = 0;
  for (int i = 0; i < count; ++i) total += num_panels(products[i].matrix->view);
  const int grab = std::max(1, std::min(kPanelsPerGrab * 8, total / (team_.size() * 4)));
  for (;;) {
    int first = next.fetch_add(grab, std::memory_order_relaxed);
    if (first >= total) return;
    int last = std::min(total, first + grab);
    for (int i = 0; i < count && last > 0; ++i) {
      const PackedMatrix& matrix = products[i].matrix->view;
      const int panels = num_panels(matrix), from = std::max(0, first), to = std::min(panels, last);
      if (from < to) {
        if (matrix.format == Format::kFloat32) {
          kernels_->matmul_float(matrix, x, num_rows, from, to, products[i].out, products[i].stride);
        } else {
          kernels_->matmul_quantized(matrix, quantized_.view, num_rows, from, to, products[i].out, products[i].stride);
        }
      }
      first -= panels;
      last -= panels;
    }
  }
}

void Decoder::rotate_and_store(Layer& layer, const PellucidBatch& batch, int thread) {
  const int dim = shape_.head_dim, half = dim / 2, heads = shape_.num_heads, kv_heads = shape_.num_kv_heads;
  const int64_t width = int64_t(heads + 2 * kv_heads) * dim;
  const int block_size = shape_.block_size;
  for (int row = thread; row < batch.num_tokens; row += team_.size()) {
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
    for (int head = 0; head < heads + kv_heads; ++head) {
      float* x = q + int64_t(head) * dim;  // k follows q
      if (shape_.qk_norm) {
        const float* weight = head < heads ? layer.q_norm.data() : layer.k_norm.data();
        kernels_->rms_norm(x, weight, dim, shape_.norm_epsilon, x);
      }
      for (int j = 0; j < half; ++j) {
        const float first = x[j], second = x[j + half];
        x[j] = first * cosine[j] - second * sine[j];
        x[j + half] = second * cosine[j] + first * sine[j];
      }
    }
    const int64_t block = batch.slot_mapping[row] / block_size, offset = batch.slot_mapping[row] % block_size;
    for (int head = 0; head < kv_heads; ++head) {
      const int64_t at = (block * kv_heads + head) * dim * block_size;
      float* keys = floats(layer.keys) + at + offset;
      for (int d = 0; d < dim; ++d) keys[int64_t(d) * block_size] = k[head * dim + d];
      std::memcpy(floats(layer.values) + at + offset * dim, v + head * dim, size_t(dim) * sizeof(float));
    }
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

void Decoder::attend(const Layer& layer, const PellucidBatch& batch, int thread, std::atomic<int>& next) {
  const int64_t dim = shape_.head_dim, kv_heads = shape_.num_kv_heads, group = shape_.num_heads / kv_heads;
  const int64_t width = (shape_.num_heads + 2 * kv_heads) * dim, q_size = shape_.num_heads * dim;
  const int num_tasks = int(tiles_.size()) * int(kv_heads);
  for (;;) {
    // Last tiles first: in a long prompt they see the most keys.
    const int index = num_tasks - 1 - next.fetch_add(1, std::memory_order_relaxed);
    if (index < 0) return;
    const AttentionTile& tile = tiles_[size_t(index / kv_heads)];
    const int64_t head = index % kv_heads;
    AttentionTask task;
    task.query = floats(qkv_) + tile.first_row * width + head * group * dim;
    task.out = floats(attended_) + tile.first_row * q_size + head * group * dim;
    task.query_stride = width;
    task.out_stride = q_size;
    task.keys = floats(layer.keys);
    task.values = floats(layer.values);
    task.block_table = batch.block_tables + int64_t(tile.seq) * batch.max_blocks;
    task.block_stride = kv_heads * dim * shape_.block_size;
    task.head_offset = head * dim * shape_.block_size;
    task.num_queries = tile.num_queries;
    task.group = int(group);
    task.head_dim = int(dim);
    task.block_size = shape_.block_size;
    task.first_num_keys = int(batch.positions[tile.first_row]) + 1;
    task.scale = attention_scale(shape_.head_dim);
    kernels_->attention(task, floats(scores_[size_t(thread)]));
  }
}

}  // namespace pellucid
