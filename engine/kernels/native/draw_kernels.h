// What the draw does over a whole vocabulary, in spans of 128 tokens: their largest scores, their weights' sums.
#pragma once
#include "exponential.h"

namespace pellucid {
namespace {

// largest[span] of scores [size]; NaN is ignored.
void span_largest(const float* scores, int size, float* largest) {
  for (int first = 0; first < size; first += kSpan, ++largest) {
    *largest = scores[first];
    if (first + kSpan > size) {
      for (int i = first; i < size; ++i) *largest = scores[i] > *largest ? scores[i] : *largest;
      return;
    }
    Lanes lanes = load(scores + first);
    for (int i = kPanel; i < kSpan; i += kPanel) lanes = larger(load(scores + first + i), lanes);
    float each[kPanel];
    store(each, lanes);
    for (int lane = 0; lane < kPanel; ++lane) *largest = each[lane] > *largest ? each[lane] : *largest;
  }
}

inline Lanes weigh_lanes(Lanes x, const WeightRule& rule) {
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i) {
    const Register y = (x.part[i] - rule.peak) * rule.inverse_temperature, power = exp_of(y), none = Register{};
    x.part[i] = y < none - 87.0f ? none : power < none + rule.least ? none : power;
  }
  return x;
}

// The last scores of a row, filled up with minus infinity.
inline Lanes load_rest(const float* scores, int count) {
  float padded[kPanel];
  for (int i = 0; i < kPanel; ++i) padded[i] = i < count ? scores[i] : -__builtin_inff();
  return load(padded);
}

// out[i] = e^((scores[i] - peak) / temperature), or 0 where that is under e^-87 or `least`.
void weigh_scores(const float* scores, int size, const WeightRule& rule, float* out) {
  int i = 0;
  for (; i + kPanel <= size; i += kPanel) store(out + i, weigh_lanes(load(scores + i), rule));
  if (i == size) return;
  float rest[kPanel];
  store(rest, weigh_lanes(load_rest(scores + i, size - i), rule));
  for (int lane = 0; i < size; ++lane, ++i) out[i] = rest[lane];
}

// The bucket of each score: the largest one's is 0, and a bucket spans the kBucketsADepth-th part of a power of e.
void bucket_scores(const float* scores, int size, const WeightRule& rule, uint16_t* buckets) {
  const float factor = rule.inverse_temperature * kBucketsADepth, last = kBuckets - 1;
  for (int i = 0; i < size; ++i) {
    const float depth = (rule.peak - scores[i]) * factor;
    buckets[i] = uint16_t(int32_t(depth < last ? depth : last));
  }
}

// running[span]: the sum of the weights up to the span's end.
void span_sums(const float* scores, int size, const WeightRule& rule, double* running) {
  double total = 0.0;
  for (int first = 0; first < size; first += kSpan, ++running) {
    Lanes sum = zeros();
    for (int i = first; i < first + kSpan && i < size; i += kPanel) {
      sum = add(sum, weigh_lanes(i + kPanel <= size ? load(scores + i) : load_rest(scores + i, size - i), rule));
    }
    float each[kPanel];
    store(each, sum);
    for (int lane = 0; lane < kPanel; ++lane) total += double(each[lane]);
    *running = total;
  }
}

}  // namespace
}  // namespace pellucid
