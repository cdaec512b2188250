#include "draw.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace pellucid {
namespace {

constexpr float kLowest = std::numeric_limits<float>::lowest(), kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

RowDraw::RowDraw(const KernelTable& kernels, int vocab_size) : kernels_(kernels), vocab_size_(vocab_size) {
  const size_t num_spans = size_t((vocab_size + kSpan - 1) / kSpan);
  largest_.resize(num_spans);
  running_.resize(num_spans);
}

int RowDraw::draw(const float* scores, const DrawSettings& settings, double uniform) {
  scores_ = scores;
  kernels_.span_largest(scores, vocab_size_, largest_.data());
  rule_ = {*std::max_element(largest_.begin(), largest_.end()), 1.0f / settings.temperature, 0.0f};
  const bool is_top_k = settings.top_k > 0 && settings.top_k < vocab_size_;
  ids_.clear();
  if (is_top_k) {
    rank_best(settings.top_k);
    double total = 0.0;
    for (const float weight : weights_) total += double(weight);
    return draw_ranked(uniform, settings.top_p, settings.min_p, total);
  }
  if (settings.top_p < 1.0) {
    kernels_.span_sums(scores, vocab_size_, rule_, running_.data());
    const double total = running_.back();
    rank_nucleus(settings.top_p * total);
    return draw_ranked(uniform, settings.top_p, settings.min_p, total);
  }
  rule_.least = settings.min_p;
  return draw_unranked(uniform);
}

// Finds the span, then the token in it.
int RowDraw::draw_unranked(double uniform) {
  kernels_.span_sums(scores_, vocab_size_, rule_, running_.data());
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

bool RowDraw::comes_before(int a, int b) const {
  return scores_[a] > scores_[b] || (scores_[a] == scores_[b] && a < b);
}

// Appends the tokens whose scores lie in at_least..below, without below. Spans without one aren't read.
void RowDraw::gather(float at_least, float below) {
  for (size_t span = 0; span < largest_.size(); ++span) {
    if (largest_[span] < at_least) continue;
    const int last = std::min(vocab_size_, int(span + 1) * kSpan);
    for (int id = int(span) * kSpan; id < last; ++id) {
      if (scores_[id] >= at_least && scores_[id] < below) ids_.push_back(id);
    }
  }
}

void RowDraw::sort_from(size_t first) {
  std::sort(ids_.begin() + int64_t(first), ids_.end(), [this](int a, int b) { return comes_before(a, b); });
}

void RowDraw::weigh_from(size_t first) {
  ranked_.resize(ids_.size());
  weights_.resize(ids_.size());
  for (size_t i = first; i < ids_.size(); ++i) ranked_[i] = scores_[ids_[i]];
  kernels_.weigh_scores(ranked_.data() + first, int(ids_.size() - first), rule_, weights_.data() + first);
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
  gather(at_least, kInfinity);
  if (int64_t(ids_.size()) > count) {
    std::nth_element(ids_.begin(), ids_.begin() + count, ids_.end(), [this](int a, int b) { return comes_before(a, b); });
    ids_.resize(size_t(count));
  }
  sort_from(0);
  weigh_from(0);
}

// The best tokens, best first, in layers of falling scores, until their weights reach `limit` or all of them are there.
void RowDraw::rank_nucleus(double limit) {
  constexpr float kFirstDepth = 2.0f, kLayer = 1.0f, kDeepest = 88.0f;  // powers of e under the largest weight
  double sum = 0.0;
  float below = kInfinity;
  for (float depth = kFirstDepth; sum < limit && below > kLowest; depth += kLayer) {
    const float bound = depth > kDeepest ? kLowest : std::max(kLowest, rule_.peak - depth / rule_.inverse_temperature);
    if (bound >= below) continue;
    const size_t first = ids_.size();
    gather(bound, below);
    sort_from(first);
    weigh_from(first);
    for (size_t i = first; i < ids_.size(); ++i) sum += double(weights_[i]);
    below = bound;
  }
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
  return ids_[size_t(std::min(found, last))];
}

}  // namespace pellucid
