// The better of two roundings of up to sixteen blocks of activations, left to the compiler; see quantize_rows.h.
#pragma once
#include "lanes.h"

namespace pellucid {
namespace {

// The sum of sixteen numbers: the halves added, then the quarters and so on.
inline float halving_sum(float* lanes) {
  for (int half = kPanel / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

// The largest magnitude of a block; NaN when an input is NaN or infinite.
inline float largest_magnitude(const float* in) {
  float largest_of[kPanel];
  bool is_finite = true;
  for (int i = 0; i < kPanel; ++i) {
    const float first = __builtin_fabsf(in[i]), second = __builtin_fabsf(in[i + kPanel]);
    largest_of[i] = first > second ? first : second;
    is_finite &= (first <= kLargest) & (second <= kLargest);
  }
  if (!is_finite) return __builtin_nanf("");
  float largest = 0.0f;
  for (int i = 0; i < kPanel; ++i) largest = largest_of[i] > largest ? largest_of[i] : largest;
  return largest;
}

struct Products {
  float dot, norm;  // y.n and n.n, y being x in steps
};

inline Products products_of(const float* in, float factor) {
  float dots[kPanel], norms[kPanel];
  for (int i = 0; i < kPanel; ++i) {
    const float y = in[i] * factor, z = in[i + kPanel] * factor;
    const float n = (y + kRoundingMagic) - kRoundingMagic, m = (z + kRoundingMagic) - kRoundingMagic;
    dots[i] = y * n + z * m;
    norms[i] = n * n + m * m;
  }
  return {halving_sum(dots), halving_sum(norms)};
}

// Rounds block b of `out` with a factor.
inline void round_block(const float* in, float factor, int b, RoundedBlocks& out) {
  out.first[b] = out.second[b] = out.chosen[b] = 0;
  if (factor == 0.0f) {
    std::memset(out.values[b], 0, kBlock);
    return;
  }
  int32_t rounded[kBlock];
  for (int i = 0; i < kBlock; ++i) rounded[i] = round_to_int(in[i] * factor);
  for (int i = 0; i < kBlock; ++i) out.values[b][i] = int8_t(rounded[i]);
  for (int i = 0; i < kPanel; ++i) out.first[b] += rounded[i];
  for (int i = kPanel; i < kBlock; ++i) out.second[b] += rounded[i];
}

// Rounds `count` <= 16 blocks, whose inputs are `stride` floats apart, to either of two numbers of steps.
inline void round_blocks(const float* in, int64_t stride, int count, const float* most_steps, RoundedBlocks& out) {
  for (int b = 0; b < count; ++b, in += stride) {
    const float largest = largest_magnitude(in);
    float factor = 0.0f;
    out.scale[b] = largest == largest ? 0.0f : largest;
    if (largest > kTiniest) {
      Products products[2];
      float factors[2], explained[2];
      for (int i = 0; i < 2; ++i) {
        factors[i] = most_steps[i] / largest;
        products[i] = products_of(in, factors[i]);
        explained[i] = products[i].dot * products[i].dot / (products[i].norm * (most_steps[i] * most_steps[i]));
      }
      const int best = explained[1] > explained[0];
      factor = factors[best];
      out.scale[b] = products[best].dot / products[best].norm * (largest / most_steps[best]);
    }
    round_block(in, factor, b, out);
    out.sum[b] = out.scale[b] * float(out.first[b] + out.second[b]);
  }
}

}  // namespace
}  // namespace pellucid
