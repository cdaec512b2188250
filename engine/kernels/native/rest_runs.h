// Which rows have a rest in which block, in the order in which they are added.
#pragma once
#include "kernel_table.h"

namespace pellucid {
namespace {

constexpr int kRestRows = 32;   // rows whose rests are added together
constexpr int kMostRests = 256;

struct RowRest {
  const RestBlock* rest;
  int row;  // counted from the first of those added together
};

// Rests of up to kRestRows rows by blocks, so that a panel's block is opened once for all rows that have one in it: up to
// kMostRests of them, in ascending order of blocks, each call of `next` those behind the last one's.
class RestRuns {
 public:
  struct Run {
    int block, stop;  // rests up to this one are the block's
  };

  RestRuns(const RestBlock* rests, int num_rows, int rests_a_row)
      : rests_(rests), num_rows_(num_rows), rests_a_row_(rests_a_row) {}

  // Collects the next ones; false if none are left.
  bool next() {
    int count = 0;
    for (num_runs_ = 0; count + num_rows_ <= kMostRests;) {
      const int block = first_block();
      if (block == kNone) break;
      for (int row = 0; row < num_rows_; ++row) {
        if (block_of_row(row) == block) found_[count++] = {rests_ + row * rests_a_row_ + taken_[row]++, row};
      }
      runs_[num_runs_++] = {block, count};
    }
    return num_runs_ > 0;
  }

  const RowRest* found() const { return found_; }
  const Run* begin() const { return runs_; }
  const Run* end() const { return runs_ + num_runs_; }

 private:
  static constexpr int kNone = INT32_MAX;

  int block_of_row(int row) const {
    return taken_[row] < rests_a_row_ ? rests_[row * rests_a_row_ + taken_[row]].block : kNone;
  }

  int first_block() const {
    int first = kNone;
    for (int row = 0; row < num_rows_; ++row) first = block_of_row(row) < first ? block_of_row(row) : first;
    return first;
  }

  const RestBlock* rests_;
  const int num_rows_, rests_a_row_;
  int taken_[kRestRows] = {};  // of each row
  RowRest found_[kMostRests];
  Run runs_[kMostRests];
  int num_runs_ = 0;
};

}  // namespace
}  // namespace pellucid
