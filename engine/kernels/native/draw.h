// The draw of one token from one row of scores: temperature, top-k, top-p, min-p and the inversion of the running sum.
// The definitions are those of engine/sampling/draw.py; only tokens near a decision are ever put in order.
#pragma once
#include <cstddef>
#include <vector>

#include "mass_search.h"

namespace pellucid {

struct DrawSettings {
  float temperature = 1.0f;
  int64_t top_k = 0;   // 0 or the vocabulary's size and more: off
  double top_p = 1.0;  // 1: off
  float min_p = 0.0f;  // 0: off
};

// Sorts as tokens do, best first: by falling score, equal ones by rising id.
static inline uint64_t rank_key(float score, int id) {
  score += 0.0f;  // -0 and 0 are equal
  uint32_t bits;
  __builtin_memcpy(&bits, &score, 4);
  const uint32_t rising = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return uint64_t(~rising) << 32 | uint32_t(id);
}
static inline int id_of(uint64_t key) { return int(uint32_t(key)); }

class RowDraw {
 public:
  RowDraw(const KernelTable& kernels, int vocab_size);

  // Scores [vocab_size]: no NaN, the largest finite. uniform: 0 <= uniform < 1.
  int draw(const float* scores, const DrawSettings& settings, double uniform);

 private:
  int draw_unranked(double uniform);
  int draw_nucleus(double uniform, double top_p, float min_p);
  void rank_best(int64_t count);
  int draw_ranked(double uniform, double top_p, float min_p, double total);

  const KernelTable& kernels_;
  const int vocab_size_;
  const float* scores_ = nullptr;
  WeightRule rule_{};
  std::vector<float> largest_;     // of each span
  std::vector<double> running_;    // sums of the spans' weights
  std::vector<float> bounds_;
  std::vector<uint64_t> keys_;     // of candidates; see rank_key
  std::vector<float> ranked_, weights_;  // their scores and weights
  std::vector<float> all_weights_;       // of the row, where there is a nucleus
  MassSearch search_;
};

}  // namespace pellucid
