#include "mass_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pellucid {
namespace {

constexpr int kRowSample = 192, kPartSample = 64;
constexpr double kMargin = 1.0;  // of a guess, in square roots of the sample's size
constexpr int kFew = 192;        // so many tokens are put in order
constexpr float kLowest = std::numeric_limits<float>::lowest(), kHighest = std::numeric_limits<float>::max();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// In powers of e under the largest weight: how far a head reaches that is tried. One of more tokens is no head.
constexpr float kHeadDepths[] = {2.0f, 4.0f, 7.0f, 11.0f};
constexpr int kMostInHead = 1024;

}  // namespace

MassSearch::MassSearch(const KernelTable& kernels, int vocab_size) : kernels_(kernels) {
  row_.size = vocab_size;
  few_.resize(size_t(kFew + kPanel));
  order_.resize(size_t(kFew));
}

void MassSearch::take(const Row& row, double mass) {
  row_.tokens = {nullptr, const_cast<float*>(row.scores), const_cast<float*>(row.weights)};
  row_.total = row.total;
  row_.largest = row.largest;
  sample(row_, kRowSample, &row_sample_);
  head_.size = 0;
  if (is_in_head(mass)) find_head(mass, row.rule);
}

// Whether about the whole sample lies beyond the token at which `mass` is reached, so that few tokens come before it. The
// sample says how much lies beyond: it misses the few heaviest tokens, and they don't count there.
bool MassSearch::is_in_head(double mass) const {
  const double scale = double(row_.size) / double(row_sample_.size());
  return row_sample_.back().running * scale <= row_.total - mass;
}

void MassSearch::find_head(double mass, const WeightRule& rule) {
  for (const float depth : kHeadDepths) {
    double above;
    const Part found = gather(row_, head_columns_, rule.peak - depth / rule.inverse_temperature, kHighest, &above);
    if (found.size > kMostInHead) return;
    if (found.total < mass) continue;
    head_ = found;
    return;
  }
}

// Tokens at equal distances, best first.
void MassSearch::sample(const Part& part, int count, std::vector<Sampled>* sampled) {
  count = std::min(count, part.size);
  const int step = part.size / count;
  for (int i = 0; i < count; ++i) few_[size_t(i)] = part.tokens.scores[i * step];
  kernels_.order_scores(few_.data(), count, order_.data());
  sampled->clear();
  double running = 0.0;
  for (int rank = 0; rank < count; ++rank) {
    const int i = order_[size_t(rank)];
    running += double(part.tokens.weights[i * step]);
    sampled->push_back({few_[size_t(i)], running});
  }
}

// The scores, lowest and highest, between which the token at a share of all weights is likely to be; one that is near it
// if they shall be the same.
std::pair<float, float> MassSearch::guess(const std::vector<Sampled>& sampled, double share, bool is_narrow) {
  const int64_t count = int64_t(sampled.size());
  const auto found = std::partition_point(sampled.begin(), sampled.end(), [&](const Sampled& one) {
    return one.running < share * sampled.back().running;
  });
  const int64_t at = std::min(found - sampled.begin(), count - 1);
  if (is_narrow) return {sampled[size_t(at)].score, sampled[size_t(at)].score};
  const int64_t margin = int64_t(kMargin * std::sqrt(double(count)));
  return {at + margin < count ? std::max(kLowest, sampled[size_t(at + margin)].score) : kLowest,
          at >= margin ? sampled[size_t(at - margin)].score : kHighest};
}

MassSearch::Part MassSearch::gather(const Part& part, Columns& columns, float under, float high, double* above) {
  if (!columns.ids) {
    const size_t size = size_t(row_.size + kPanel);
    columns = {std::make_unique_for_overwrite<int32_t[]>(size), std::make_unique_for_overwrite<float[]>(size),
               std::make_unique_for_overwrite<float[]>(size)};
  }
  const TokenColumns to{columns.ids.get(), columns.scores.get(), columns.weights.get()};
  const GatheredTokens found = kernels_.gather_tokens(part.tokens, part.size, part.largest, under, high, to);
  *above = found.above;
  return {to, found.count, found.inside, nullptr};
}

// Into the columns that the part isn't in.
MassSearch::Part MassSearch::gather_from(const Part& part, float under, float high, double* above) {
  const bool is_first = part.tokens.ids && part.tokens.ids == columns_[0].ids.get();
  return gather(part, columns_[is_first], under, high, above);
}

MassSearch::Place MassSearch::reach(double mass) {
  Part part = head_.size && mass <= head_.total ? head_ : row_;
  double before = 0.0;  // the sum of all that is above the part; always under `mass`
  bool is_narrow = false;
  while (part.size > kFew) {
    const bool is_row = !part.tokens.ids;
    if (!is_row) sample(part, kPartSample, &part_sample_);
    const auto [low, high] = guess(is_row ? row_sample_ : part_sample_, (mass - before) / part.total, is_narrow);
    const float under = std::nextafter(low, -kInfinity);
    double above;
    Part found = gather_from(part, under, high, &above);
    if (mass <= before + above) {
      found = gather_from(part, high, kHighest, &above);
    } else if (mass > before + above + found.total) {
      before = before + above + found.total;
      found = gather_from(part, -kInfinity, under, &above);
      if (found.total == 0.0) return last(part, before);
    } else {
      before += above;
      if (low == high) return walk(found, before, mass, true);
    }
    is_narrow = found.size > part.size / 2;
    part = found;
  }
  return walk(part, before, mass, false);
}

// Tokens of equal scores lie in their order already.
MassSearch::Place MassSearch::walk(const Part& part, double before, double mass, bool is_tied) {
  if (!is_tied) {
    std::copy_n(part.tokens.scores, part.size, few_.begin());
    kernels_.order_scores(few_.data(), part.size, order_.data());
  }
  Place place{0, before};
  for (int rank = 0; rank < part.size && place.sum < mass; ++rank) {
    const int i = is_tied ? rank : order_[size_t(rank)];
    if (part.tokens.weights[i] == 0.0f) continue;
    place = {part.tokens.ids ? part.tokens.ids[i] : i, place.sum + double(part.tokens.weights[i])};
  }
  return place;
}

MassSearch::Place MassSearch::last(const Part& part, double sum) const {
  Place place{0, sum};
  float worst = kInfinity;
  for (int i = 0; i < part.size; ++i) {
    const int id = part.tokens.ids ? part.tokens.ids[i] : i;
    if (part.tokens.weights[i] == 0.0f || row_.tokens.scores[id] > worst) continue;
    worst = row_.tokens.scores[id];
    place.id = id;
  }
  return place;
}

MassSearch::Place MassSearch::reach_weight(float least) {
  Part part = head_.size ? head_ : row_;
  part.tokens.scores = part.tokens.weights;
  part.largest = nullptr;
  double above;
  const Part found = gather_from(part, std::nextafter(least, 0.0f), kHighest, &above);
  return last(found, found.total);
}

}  // namespace pellucid
