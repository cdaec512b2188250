// Rotary positions (Su et al., arXiv 2104.09864), first half of a head's dimensions paired with the second.
#pragma once
#include "lanes.h"

namespace pellucid {
namespace {

// x, out [num_heads][head_dim] of one token, which may be the same; cosines, sines [head_dim / 2] of its position.
void rope(const float* x, const float* cosines, const float* sines, int num_heads, int head_dim, float* out) {
  const int half = head_dim / 2;
  for (int head = 0; head < num_heads; ++head, x += head_dim, out += head_dim) {
    int j = 0;
    for (; j + kPanel <= half; j += kPanel) {
      const Lanes first = load(x + j), second = load(x + j + half);
      const Lanes cosine = load(cosines + j), sine = load(sines + j);
      store(out + j, subtract(multiply(first, cosine), multiply(second, sine)));
      store(out + j + half, add(multiply(second, cosine), multiply(first, sine)));
    }
    for (; j < half; ++j) {
      const float first = x[j], second = x[j + half];
      out[j] = first * cosines[j] - second * sines[j];
      out[j + half] = second * cosines[j] + first * sines[j];
    }
  }
}

}  // namespace
}  // namespace pellucid
