// A row's tokens, best first, searched by the sum of their weights without ranking them all.
#pragma once
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "kernel_table.h"

namespace pellucid {

// Quickselect by weight: an ordered sample guesses between which scores the token lies, one pass sums what is above them
// and copies what is between, and so on in there until a few are left to put in order. Where a guess was wrong it goes on
// beside it: the sample decides how long a search takes and not what it finds.
class MassSearch {
 public:
  struct Row {
    const float* scores;   // [vocab_size]
    const float* weights;  // [vocab_size], by the rule
    const float* largest;  // score of each span
    double total;          // about the sum of the weights
    WeightRule rule;
  };

  // The last token of a head of the row, best first, and the sum of that head's weights.
  struct Place {
    int id;
    double sum;
  };

  MassSearch(const KernelTable& kernels, int vocab_size);

  // Searches in this row from now on; most that is asked for will be about `mass` or less.
  void take(const Row& row, double mass);

  // The first token at which the sum is at least `mass`, which is over 0; without one the last token of a weight over 0.
  Place reach(double mass);

  // The last token of at least a weight, which isn't under that of the token at which the mass given to take() is reached.
  Place reach_weight(float least);

 private:
  struct Part {
    TokenColumns tokens;
    int size;
    double total;
    const float* largest;  // of each span, or null
  };
  struct Sampled {
    float score;
    double running;  // sum of the weights of the sample up to it
  };
  struct Columns {
    std::unique_ptr<int32_t[]> ids;
    std::unique_ptr<float[]> scores, weights;
  };

  void find_head(double mass, const WeightRule& rule);
  bool is_in_head(double mass) const;
  void sample(const Part& part, int count, std::vector<Sampled>* sampled);
  static std::pair<float, float> guess(const std::vector<Sampled>& sampled, double share, bool is_narrow);
  Part gather(const Part& part, Columns& columns, float under, float high, double* above);
  Part gather_from(const Part& part, float under, float high, double* above);
  Place walk(const Part& part, double before, double mass, bool is_tied);
  Place last(const Part& part, double sum) const;

  const KernelTable& kernels_;
  Part row_{}, head_{};
  std::vector<Sampled> row_sample_, part_sample_;
  std::vector<float> few_;  // scores that are put in order
  std::vector<int32_t> order_;
  Columns columns_[2], head_columns_;
};

}  // namespace pellucid
