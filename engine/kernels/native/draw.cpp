#include "draw.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace pellucid {
namespace {

constexpr size_t kFewTokens = 512;  // so many are sorted; more go into buckets first
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
    if (rank_nucleus(settings.top_p * total)) return draw_ranked(uniform, settings.top_p, settings.min_p, total);
    return draw_from_buckets(uniform, settings.top_p * total, settings.min_p);
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

// The same unless the tokens become more than a few; false then.
bool RowDraw::gather_few(float at_least, float below) {
  for (size_t span = 0; span < largest_.size(); ++span) {
    if (largest_[span] < at_least) continue;
    const int last = std::min(vocab_size_, int(span + 1) * kSpan);
    for (int id = int(span) * kSpan; id < last; ++id) {
      if (scores_[id] >= at_least && scores_[id] < below) ids_.push_back(id);
    }
    if (ids_.size() > kFewTokens) return false;
  }
  return true;
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
// False when they are more than a few.
bool RowDraw::rank_nucleus(double limit) {
  constexpr float kFirstDepth = 2.0f, kLayer = 1.0f, kDeepest = 88.0f;  // powers of e under the largest weight
  double sum = 0.0;
  float below = kInfinity;
  for (float depth = kFirstDepth; sum < limit && below > kLowest; depth += kLayer) {
    const float bound = depth > kDeepest ? kLowest : std::max(kLowest, rule_.peak - depth / rule_.inverse_temperature);
    if (bound >= below) continue;
    const size_t first = ids_.size();
    if (!gather_few(bound, below)) return false;
    sort_from(first);
    weigh_from(first);
    for (size_t i = first; i < ids_.size(); ++i) sum += double(weights_[i]);
    below = bound;
  }
  return true;
}

// Puts every token into a bucket of falling scores, and sorts only the two buckets in which something is decided: where
// the nucleus ends, and where the uniform number falls.
int RowDraw::draw_from_buckets(double uniform, double limit, float min_p) {
  buckets_.resize(size_t(vocab_size_));
  all_weights_.resize(size_t(vocab_size_));
  bucket_sums_.assign(size_t(kBuckets), 0.0);
  kernels_.bucket_scores(scores_, vocab_size_, rule_, buckets_.data());
  kernels_.weigh_scores(scores_, vocab_size_, rule_, all_weights_.data());
  for (size_t id = 0; id < buckets_.size(); ++id) bucket_sums_[buckets_[id]] += double(all_weights_[id]);

  // The sum of what is kept, and how many tokens of the last bucket are.
  double kept = 0.0;
  int bucket = 0;
  size_t count = 0;
  for (;; ++bucket) {
    const double sum = bucket_sums_[size_t(bucket)];
    if (sum == 0.0 && bucket + 1 < kBuckets) continue;
    const bool is_above_min_p = min_p == 0.0f || std::exp(-float(bucket + 2) / kBucketsADepth) > min_p;
    if (kept + sum < limit && is_above_min_p && bucket + 1 < kBuckets) {
      kept += sum;
      continue;
    }
    rank_bucket(bucket);
    count = 0;
    while (count < ids_.size() && kept < limit && weights_[count] >= min_p && weights_[count] > 0.0f) {
      kept += double(weights_[count++]);
    }
    if (count < ids_.size() || bucket + 1 == kBuckets) break;
  }

  const double target = uniform * kept;
  double running = 0.0;
  int hit = 0;
  while (hit < bucket && running + bucket_sums_[size_t(hit)] <= target) running += bucket_sums_[size_t(hit++)];
  if (hit < bucket) {
    rank_bucket(hit);
    count = ids_.size();
  }
  for (size_t i = 0; i < count; ++i) {
    running += double(weights_[i]);
    if (running > target) return ids_[i];
  }
  // Rounding can lift the target to the sum itself: then it is the last token that is kept.
  while (count == 0) {
    rank_bucket(--bucket);
    count = ids_.size();
  }
  return ids_[count - 1];
}

// The tokens of one bucket, best first, with their weights.
void RowDraw::rank_bucket(int bucket) {
  constexpr size_t kStretch = 16;  // most hold none
  ids_.clear();
  size_t first = 0;
  for (; first + kStretch <= buckets_.size(); first += kStretch) {
    bool is_any = false;
    for (size_t id = first; id < first + kStretch; ++id) is_any |= buckets_[id] == bucket;
    for (size_t id = first; is_any && id < first + kStretch; ++id) {
      if (buckets_[id] == bucket) ids_.push_back(int(id));
    }
  }
  for (; first < buckets_.size(); ++first) {
    if (buckets_[first] == bucket) ids_.push_back(int(first));
  }
  sort_from(0);
  weigh_from(0);
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
