// What the draw does over a whole vocabulary: the largest scores and the weights' sums of spans of 128 tokens, and the
// tokens of a range of scores.
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

inline Lanes weigh_lanes(Lanes x, WeightRule rule) {
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i) {
    const Register y = (x.part[i] - rule.peak) * rule.inverse_temperature, power = exp_of(y), none = Register{};
    x.part[i] = y < none - 87.0f ? none : power < none + rule.least ? none : power;
  }
  return x;
}

// The last `count` numbers of an array, filled up.
inline Lanes load_rest(const float* x, int count, float filling = -__builtin_inff()) {
  float padded[kPanel];
  for (int i = 0; i < kPanel; ++i) padded[i] = i < count ? x[i] : filling;
  return load(padded);
}

inline void store_rest(float* out, int count, Lanes x) {
  float each[kPanel];
  store(each, x);
  for (int i = 0; i < count; ++i) out[i] = each[i];
}

// out[i] = e^((scores[i] - peak) / temperature), or 0 where that is under e^-87 or `least`.
void weigh_scores(const float* scores, int size, const WeightRule& rule, float* out) {
  int i = 0;
  for (; i + kPanel <= size; i += kPanel) store(out + i, weigh_lanes(load(scores + i), rule));
  if (i < size) store_rest(out + i, size - i, weigh_lanes(load_rest(scores + i, size - i), rule));
}

// The sum in float64, in halves of halves.
inline double total_of(Lanes x) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_pd(_mm512_cvtps_pd(_mm512_castps512_ps256(x.part[0])) +
                              _mm512_cvtps_pd(_mm512_extractf32x8_ps(x.part[0], 1)));
#else
  float values[kPanel];
  store(values, x);
  double sums[kPanel / 2];
  for (int i = 0; i < kPanel / 2; ++i) sums[i] = double(values[i]) + double(values[i + kPanel / 2]);
  for (int half = kPanel / 4; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
#endif
}

// running[span]: the sum of the weights up to the span's end. The weights [size] too, unless null.
void span_sums(const float* scores, int size, const WeightRule& settings, double* running, float* weights) {
  const WeightRule rule = settings;  // what is written can't change it
  double total = 0.0;
  for (int first = 0; first < size; first += kSpan, ++running) {
    Lanes sum = zeros();
    for (int i = first; i < first + kSpan && i < size; i += kPanel) {
      const bool is_whole = i + kPanel <= size;
      const Lanes found = weigh_lanes(is_whole ? load(scores + i) : load_rest(scores + i, size - i), rule);
      sum = add(sum, found);
      if (!weights) continue;
      if (is_whole) {
        store(weights + i, found);
      } else {
        store_rest(weights + i, size - i, found);
      }
    }
    total += total_of(sum);
    *running = total;
  }
}

// The bits of lanes: bit i says something of number i.
inline uint32_t lanes_above(Lanes x, float bound) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask(x.part[0], _mm512_set1_ps(bound), _CMP_GT_OQ);
#elif defined(__AVX2__)
  const __m256 bounds = _mm256_set1_ps(bound);
  return uint32_t(_mm256_movemask_ps(_mm256_cmp_ps(x.part[0], bounds, _CMP_GT_OQ))) |
         uint32_t(_mm256_movemask_ps(_mm256_cmp_ps(x.part[1], bounds, _CMP_GT_OQ))) << 8;
#else
  float each[kPanel];
  store(each, x);
  uint32_t mask = 0;
  for (int lane = 0; lane < kPanel; ++lane) mask |= uint32_t(each[lane] > bound) << lane;
  return mask;
#endif
}

// The weights of scores above `bound`; 0 for the others.
inline Lanes weights_above(Lanes scores, float bound, Lanes weights) {
#if defined(__AVX512F__)
  return {{_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(scores.part[0], _mm512_set1_ps(bound), _CMP_GT_OQ), weights.part[0])}};
#else
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i) weights.part[i] = scores.part[i] > Register{} + bound ? weights.part[i] : Register{};
  return weights;
#endif
}

// Writes the numbers that `mask` names side by side.
inline void store_chosen(float* to, Lanes x, uint32_t mask) {
#if defined(__AVX512F__)
  // To a register first: compressing straight to memory is slow on some processors.
  _mm512_storeu_ps(to, _mm512_maskz_compress_ps(__mmask16(mask), x.part[0]));
#else
  float each[kPanel];
  store(each, x);
  for (; mask; mask &= mask - 1) *to++ = each[__builtin_ctz(mask)];
#endif
}

// The same of ids: those of a panel, or first, first + 1, ... where it has none.
inline void store_chosen_ids(int32_t* to, const int32_t* ids, int64_t first, uint32_t mask) {
#if defined(__AVX512F__)
  const __m512i counted = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i all = ids ? _mm512_loadu_si512(ids) : _mm512_add_epi32(counted, _mm512_set1_epi32(int32_t(first)));
  _mm512_storeu_si512(to, _mm512_maskz_compress_epi32(__mmask16(mask), all));
#else
  for (; mask; mask &= mask - 1) {
    const int i = __builtin_ctz(mask);
    *to++ = ids ? ids[i] : int32_t(first) + i;
  }
#endif
}

// Sums float32 in spans, as span_sums does, and the spans in float64.
inline double sum_of(const float* x, int size) {
  double total = 0.0;
  for (int i = 0; i < size;) {
    Lanes sum = zeros();
    for (const int end = i + kSpan; i < end && i < size; i += kPanel) {
      sum = add(sum, i + kPanel <= size ? load(x + i) : load_rest(x + i, size - i, 0.0f));
    }
    total += total_of(sum);
  }
  return total;
}

template <bool HAS_IDS>
inline GatheredTokens gather_from(TokenColumns from, int size, const float* largest, float under, float high,
                                  TokenColumns to) {
  const float* const scores = from.scores;
  const float* const weights = from.weights;
  double above = 0.0;
  int64_t count = 0;
  const auto take = [&count, to, under, high](int64_t i, Lanes x, Lanes weight, const int32_t* ids) {
    const uint32_t found = lanes_above(x, under) & ~lanes_above(x, high);
    store_chosen(to.scores + count, x, found);
    store_chosen(to.weights + count, weight, found);
    store_chosen_ids(to.ids + count, ids, i, found);
    count += __builtin_popcount(found);
  };
  int64_t i = 0;
  const int64_t whole = size / kPanel * kPanel;
  while (i < whole) {
    const int64_t end = i + kSpan < whole ? i + kSpan : whole;
    if (largest && largest[i / kSpan] <= under) {
      i = end;
      continue;
    }
    Lanes sum = zeros();
#pragma GCC unroll 1
    for (; i < end; i += kPanel) {
      const Lanes x = load(scores + i), weight = load(weights + i);
      sum = add(sum, weights_above(x, high, weight));
      take(i, x, weight, HAS_IDS ? from.ids + i : nullptr);
    }
    above += total_of(sum);
  }
  if (i < size) {
    const Lanes x = load_rest(scores + i, int(size - i)), weight = load_rest(weights + i, int(size - i), 0.0f);
    int32_t ids[kPanel] = {};
    for (int64_t each = i; HAS_IDS && each < size; ++each) ids[each - i] = from.ids[each];
    above += total_of(weights_above(x, high, weight));
    take(i, x, weight, HAS_IDS ? ids : nullptr);
  }
  return {int(count), sum_of(to.weights, int(count)), above};
}

// Copies the tokens whose scores lie above `under` and up to `high`, in their order. `to` has room for kPanel more than are
// found; it may not be `from`. largest: of each span; those without a score above `under` aren't read. Null: all are.
GatheredTokens gather_tokens(const TokenColumns& from, int size, const float* largest, float under, float high,
                             const TokenColumns& to) {
  return from.ids ? gather_from<true>(from, size, largest, under, high, to)
                  : gather_from<false>(from, size, largest, under, high, to);
}

// order[rank] is the place of a score among scores [size], best first and equal ones in their order. Every score is
// compared with every other: without branches that is faster than sorting for a few hundred. `scores` has room for kPanel
// more, which is overwritten.
void order_scores(float* scores, int size, int32_t* order) {
  typedef int32_t Bits __attribute__((vector_size(kRegisterBytes)));
  for (int i = size; i < size + kPanel; ++i) scores[i] = -__builtin_inff();
  for (int first = 0; first < size; first += kPanel) {
    const Lanes x = load(scores + first);
    Bits ranks[kParts] = {};
    int j = 0;
    for (; j < first; ++j) {
      const Register other = Register{} + scores[j];
#pragma GCC unroll 4
      for (int i = 0; i < kParts; ++i) ranks[i] -= Bits(other >= x.part[i]);
    }
    for (; j < size; ++j) {
      const Register other = Register{} + scores[j];
#pragma GCC unroll 4
      for (int i = 0; i < kParts; ++i) ranks[i] -= Bits(other > x.part[i]);
    }
    int32_t each[kPanel];
    std::memcpy(each, ranks, sizeof(each));
    for (int i = 0; i < kPanel && first + i < size; ++i) {
      for (int before = 0; before < i; ++before) each[i] += scores[first + before] == scores[first + i];
      order[each[i]] = first + i;
    }
  }
}

}  // namespace
}  // namespace pellucid
