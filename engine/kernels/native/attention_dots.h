// Paged attention in dot products of bfloat16, over a cache that lies in pairs; see attention_pairs.h.
//
// Twenty-four of 32 registers accumulate: six rows times four vectors, of keys or of dimensions. A decode has fewer rows.
#pragma once
#include "attention_pairs.h"

#if defined(__AVX512BF16__) && !defined(__AMX_BF16__)
namespace pellucid {
namespace {

constexpr int kDotRows = 6, kDotVectors = 4;
constexpr int kDotSet = 4 * kDotRows;  // rows whose scores and weights are kept at once
static_assert(kDotSet <= kPairedRows);

// The rows of a set, and their scratch.
struct DotRows : PairedRows {
  int64_t room;       // keys, in vectors as they are scored
  float* scores;      // [row][room]
  uint16_t* weights;  // [row][room]
  uint16_t* queries;  // [row][head_dim]

  explicit DotRows(const PairedRows& some)
      : PairedRows(some), room((num_chunks + kDotVectors - 1) / kDotVectors * kDotVectors * kPanel), scores(scratch()) {
    weights = reinterpret_cast<uint16_t*>(scores + num_rows * room);
    queries = weights + num_rows * room;
  }
};

inline __m512bh two_halves(const uint16_t* pair) {
  int32_t both;
  std::memcpy(&both, pair, 4);
  return __m512bh(_mm512_set1_epi32(both));
}

inline __m512bh pairs_at(const uint8_t* pairs) { return __m512bh(_mm512_loadu_si512(pairs)); }

// Scores of ROWS rows against kDotVectors chunks of keys; past the last chunk its keys stand in.
template <int ROWS>
inline void score_dots(const DotRows& set, int row, int chunk) {
  const int head_dim = set.layout.head_dim;
  const int64_t step = int64_t(set.layout.block_size) * 4;
  const uint8_t* keys[kDotVectors];
  LinesAhead ahead[kDotVectors];
  __m512 total[ROWS][kDotVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kDotVectors; ++v) {
    keys[v] = set.keys(chunk + v < set.num_chunks ? chunk + v : set.num_chunks - 1);
    ahead[v] = row ? LinesAhead{keys[v], 0} : keys_ahead(set, chunk + v + kAheadChunks);
#pragma GCC unroll 6
    for (int r = 0; r < ROWS; ++r) total[r][v] = _mm512_setzero_ps();
  }
  const uint16_t* queries = set.queries + row * head_dim;
  for (int pair = 0; pair < head_dim / 2; ++pair) {
    __m512bh key[kDotVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kDotVectors; ++v) {
      key[v] = pairs_at(keys[v] + pair * step);
      if (row == 0) ahead[v].ask(pair, 1);
    }
#pragma GCC unroll 6
    for (int r = 0; r < ROWS; ++r) {
      const __m512bh query = two_halves(queries + r * head_dim + 2 * pair);
#pragma GCC unroll 4
      for (int v = 0; v < kDotVectors; ++v) total[r][v] = _mm512_dpbf16_ps(total[r][v], key[v], query);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < ROWS; ++r) {
    float* out = set.scores + (row + r) * set.room + chunk * kPanel;
#pragma GCC unroll 4
    for (int v = 0; v < kDotVectors; ++v) _mm512_storeu_ps(out + v * kPanel, total[r][v]);
  }
}

// Outputs of ROWS rows in VECTORS x 16 dimensions from first_dim on. inverse: 1 / the sums of the set's weights.
template <int ROWS, int VECTORS>
inline void weigh_dots(const DotRows& set, int row, int first_dim, const float* inverse) {
  const int head_dim = set.layout.head_dim;
  const bool asks = row == 0 && first_dim == 0;
  __m512 total[ROWS][VECTORS];
#pragma GCC unroll 6
  for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v) total[r][v] = _mm512_setzero_ps();
  }
  const uint16_t* weights = set.weights + row * set.room;
  for (int chunk = 0; chunk < set.num_chunks; ++chunk, weights += kPanel) {
    const uint8_t* values = set.values(chunk) + first_dim * 4;
    LinesAhead ahead{values, 0};
    if (asks) ahead = values_ahead(set, chunk + kAheadChunks);
    for (int pair = 0; pair < kPanel / 2; ++pair, values += head_dim * 4) {
      if (asks) ahead.ask(pair * head_dim / kPanel, head_dim / kPanel);
      __m512bh value[VECTORS];
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; ++v) value[v] = pairs_at(values + v * 64);
#pragma GCC unroll 6
      for (int r = 0; r < ROWS; ++r) {
        const __m512bh weight = two_halves(weights + r * set.room + 2 * pair);
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; ++v) total[r][v] = _mm512_dpbf16_ps(total[r][v], value[v], weight);
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < ROWS; ++r) {
    const __m512 factor = _mm512_set1_ps(inverse[row + r]);
    float* out = set.rows.out(set.first_row + row + r) + first_dim;
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v) _mm512_storeu_ps(out + v * kPanel, _mm512_mul_ps(total[r][v], factor));
  }
}

// body<ROWS>(row): all rows of a set, kDotRows at a time, then those that are left over.
template <typename Body>
inline void by_dot_rows(int num_rows, const Body& body) {
  int row = 0;
  for (; row + kDotRows <= num_rows; row += kDotRows) body.template operator()<kDotRows>(row);
  switch (num_rows - row) {
    case 5: return body.template operator()<5>(row);
    case 4: return body.template operator()<4>(row);
    case 3: return body.template operator()<3>(row);
    case 2: return body.template operator()<2>(row);
    case 1: return body.template operator()<1>(row);
  }
}

void attend_in_pairs(const AttentionTask& task, float* scratch) {
  attend_in_sets(task, scratch, kDotSet, [](const PairedRows& some) {
    const DotRows set(some);
    const int head_dim = set.layout.head_dim;
    round_queries(set, set.queries);
    for (int chunk = 0; chunk < set.num_chunks; chunk += kDotVectors) {
      by_dot_rows(set.num_rows, [&]<int ROWS>(int row) { score_dots<ROWS>(set, row, chunk); });
    }
    if (set.is_last_partial()) copy_last_values(set);
    float inverse[kDotSet];
    for (int row = 0; row < set.num_rows; ++row) {
      inverse[row] = weigh_row(set, row, set.scores + row * set.room, set.weights + row * set.room, kPanel);
    }
    by_dot_rows(set.num_rows, [&]<int ROWS>(int row) {
      int dim = 0;
      for (; dim + kDotVectors * kPanel <= head_dim; dim += kDotVectors * kPanel) {
        weigh_dots<ROWS, kDotVectors>(set, row, dim, inverse);
      }
      for (; dim < head_dim; dim += 2 * kPanel) weigh_dots<ROWS, 2>(set, row, dim, inverse);
    });
  });
}

}  // namespace
}  // namespace pellucid
#endif
