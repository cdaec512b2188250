// Rotary positions (Su et al., arXiv 2104.09864), first half of a head's dimensions paired with the second.
#pragma once
#include "lanes.h"

namespace pellucid {
namespace {

// x, out [num_heads][head_dim] of one token, which may be the same; cosines, sines [head_dim / 2] of its position.
void rope(const float* x, const float* cosines, const float* sines, int num_heads, int head_dim, float* out) {
  const int half = head_dim / 2;
  for (int head = 0; head < num_heads; ++head, x += head_dim, out += head_dim) {
    for (int j = 0; j < half; ++j) {
      const float first = x[j], second = x[j + half];
      out[j] = first * cosines[j] - second * sines[j];
      out[j + half] = second * cosines[j] + first * sines[j];
    }
  }
}

}  // namespace
}  // namespace pellucid
