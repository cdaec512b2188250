// The draw of one token from one row of scores: temperature, top-k, top-p, min-p and the inversion of the running sum.
// The definitions are those of engine/sampling/draw.py; only tokens near a decision are ever sorted.
#pragma once
#include <cstddef>
#include <vector>

#include "kernel_table.h"

namespace pellucid {

struct DrawSettings {
  float temperature = 1.0f;
  int64_t top_k = 0;   // 0 or the vocabulary's size and more: off
  double top_p = 1.0;  // 1: off
  float min_p = 0.0f;  // 0: off
};

class RowDraw {
 public:
  RowDraw(const KernelTable& kernels, int vocab_size);

  // Scores [vocab_size]: no NaN, the largest finite. uniform: 0 <= uniform < 1.
  int draw(const float* scores, const DrawSettings& settings, double uniform);

 private:
  bool comes_before(int a, int b) const;
  int draw_unranked(double uniform);
  void rank_best(int64_t count);
  bool rank_nucleus(double limit);
  int draw_from_buckets(double uniform, double limit, float min_p);
  void rank_bucket(int bucket);
  int draw_ranked(double uniform, double top_p, float min_p, double total);
  void gather(float at_least, float below);
  bool gather_few(float at_least, float below);
  void sort_from(size_t first);
  void weigh_from(size_t first);

  const KernelTable& kernels_;
  const int vocab_size_;
  const float* scores_ = nullptr;
  WeightRule rule_{};
  std::vector<float> largest_;     // of each span
  std::vector<double> running_;    // sums of the spans' weights
  std::vector<float> bounds_;
  std::vector<uint16_t> buckets_;  // of each token, where a nucleus is wide
  std::vector<float> all_weights_;
  std::vector<double> bucket_sums_;
  std::vector<int> ids_;           // candidates, best first
  std::vector<float> ranked_, weights_;  // their scores and weights
};

}  // namespace pellucid
