#include "draw.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace pellucid {
namespace {

constexpr float kLowest = std::numeric_limits<float>::lowest();

}  // namespace

RowDraw::RowDraw(const KernelTable& kernels, int vocab_size)
    : kernels_(kernels), vocab_size_(vocab_size), search_(kernels, vocab_size) {
  const size_t num_spans = size_t((vocab_size + kSpan - 1) / kSpan);
  largest_.resize(num_spans);
  running_.resize(num_spans);
}

int RowDraw::draw(const float* scores, const DrawSettings& settings, double uniform) {
  scores_ = scores;
  kernels_.span_largest(scores, vocab_size_, largest_.data());
  rule_ = {*std::max_element(largest_.begin(), largest_.end()), 1.0f / settings.temperature, 0.0f};
  const bool is_top_k = settings.top_k > 0 && settings.top_k < vocab_size_;
  keys_.clear();
  if (is_top_k) {
    rank_best(settings.top_k);
    double total = 0.0;
    for (const float weight : weights_) total += double(weight);
    return draw_ranked(uniform, settings.top_p, settings.min_p, total);
  }
  if (settings.top_p < 1.0) return draw_nucleus(uniform, settings.top_p, settings.min_p);
  rule_.least = settings.min_p;
  return draw_unranked(uniform);
}

// Finds the span, then the token in it.
int RowDraw::draw_unranked(double uniform) {
  kernels_.span_sums(scores_, vocab_size_, rule_, running_.data(), nullptr);
  const double total = running_.back(), target = uniform * total;
  auto at = std::upper_bound(running_.begin(), running_.end(), target);
  // Rounding can lift the target to the total itself.
  if (at == running_.end()) at = std::lower_bound(running_.begin(), running_.end(), total);
  const int first = int(at - running_.begin()) * kSpan, count = std::min(kSpan, vocab_size_ - first);
  float weights[kSpan];
  kernels_.weigh_scores(scores_ + first, count, rule_, weights);
  double running = at == running_.begin() ? 0.0 : at[-1];
  int found = 0;
  for (int i = 0; i < count; ++i) {
    if (weights[i] == 0.0f) continue;
    found = i;
    running += double(weights[i]);
    if (running > target) break;
  }
  return first + found;
}

// Two tokens are searched: the last of the nucleus, and the one on which the number falls.
int RowDraw::draw_nucleus(double uniform, double top_p, float min_p) {
  all_weights_.resize(size_t(vocab_size_));
  kernels_.span_sums(scores_, vocab_size_, rule_, running_.data(), all_weights_.data());
  const double total = running_.back(), limit = top_p * total;
  search_.take({scores_, all_weights_.data(), largest_.data(), total, rule_}, limit);
  MassSearch::Place last = search_.reach(limit);
  if (all_weights_[size_t(last.id)] < min_p) last = search_.reach_weight(min_p);
  const double target = uniform * last.sum;
  const int hit = search_.reach(std::nextafter(target, std::numeric_limits<double>::infinity())).id;
  // Rounding can lift the target to the sum itself.
  return rank_key(scores_[last.id], last.id) < rank_key(scores_[hit], hit) ? last.id : hit;
}

// The best `count` tokens, best first. The count-th largest of the spans' largest scores is reached by at least `count`
// tokens, so those below it are out.
void RowDraw::rank_best(int64_t count) {
  float at_least = kLowest;
  if (count <= int64_t(largest_.size())) {
    bounds_ = largest_;
    std::nth_element(bounds_.begin(), bounds_.begin() + (count - 1), bounds_.end(), std::greater<float>());
    at_least = std::max(at_least, bounds_[size_t(count - 1)]);
  }
  for (size_t span = 0; span < largest_.size(); ++span) {
    if (largest_[span] < at_least) continue;
    const int last = std::min(vocab_size_, int(span + 1) * kSpan);
    for (int id = int(span) * kSpan; id < last; ++id) {
      if (scores_[id] >= at_least) keys_.push_back(rank_key(scores_[id], id));
    }
  }
  if (int64_t(keys_.size()) > count) {
    std::nth_element(keys_.begin(), keys_.begin() + count, keys_.end());
    keys_.resize(size_t(count));
  }
  std::sort(keys_.begin(), keys_.end());
  ranked_.resize(keys_.size());
  weights_.resize(keys_.size());
  for (size_t i = 0; i < keys_.size(); ++i) ranked_[i] = scores_[id_of(keys_[i])];
  kernels_.weigh_scores(ranked_.data(), int(keys_.size()), rule_, weights_.data());
}

// Drops what lies beyond the nucleus or under min_p, and draws among the rest.
int RowDraw::draw_ranked(double uniform, double top_p, float min_p, double total) {
  const double limit = top_p * total;
  running_.clear();
  double sum = 0.0;
  for (const float weight : weights_) {
    if (sum >= limit || weight < min_p || weight == 0.0f) break;  // as are all that follow
    sum += double(weight);
    running_.push_back(sum);
  }
  const int64_t last = int64_t(running_.size()) - 1;
  const int64_t found = std::upper_bound(running_.begin(), running_.end(), uniform * sum) - running_.begin();
  running_.resize(largest_.size());
  return id_of(keys_[size_t(std::min(found, last))]);
}

}  // namespace pellucid
