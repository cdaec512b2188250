// What attention over a bfloat16 cache that lies in pairs (see kv_layout.h) shares, in tile registers or in dot products:
// queries and weights are rounded to bfloat16, products of them are summed in float32.
//
// Keys go in chunks of sixteen, in order. A row's scores and outputs come out of the same sequence of products whatever rows
// are beside it, and a chunk beyond its keys adds products with a weight of zero, so its bits depend on nothing but itself.
// Zero times a value that isn't finite would not be zero: see has_endless_values.
#pragma once
#include "attention_rows.h"
#include "exponential.h"
#include "kv_values.h"

#if defined(__AVX512BF16__)
namespace pellucid {
namespace {

constexpr int kAheadChunks = 4;

// Some neighbouring rows of a task, and the keys and values that they see.
struct PairedRows {
  const AttentionRows& rows;
  const Pieces& pieces;
  const KvLayout& layout;
  int first_row, num_rows, most_keys, num_chunks;
  uint16_t* last;  // [8][head_dim][2]: values of the last chunk, zero where no key is

  PairedRows(const AttentionRows& rows, const Pieces& pieces, int first_row, int num_rows)
      : rows(rows), pieces(pieces), layout(rows.task.layout), first_row(first_row), num_rows(num_rows),
        most_keys(rows.num_keys(first_row + num_rows - 1)), num_chunks((most_keys + kPanel - 1) / kPanel),
        last(reinterpret_cast<uint16_t*>(rows.scores)) {}

  float* scratch() const { return rows.scores + kPanel / 2 * layout.head_dim; }  // behind `last`
  int num_keys(int row) const { return rows.num_keys(first_row + row); }
  const uint8_t* keys(int chunk) const {
    const int key = chunk * kPanel;
    return pieces.of(key / layout.block_size) + key % layout.block_size * 4;
  }
  const uint8_t* stored_values(int chunk) const {
    const int key = chunk * kPanel;
    return pieces.of(key / layout.block_size) + layout.values_offset() +
           int64_t(key % layout.block_size) * layout.head_dim * 2;
  }
  bool is_last_partial() const { return most_keys % kPanel != 0; }
  const uint8_t* values(int chunk) const {
    const bool is_copied = chunk == num_chunks - 1 && is_last_partial();
    return is_copied ? reinterpret_cast<const uint8_t*>(last) : stored_values(chunk);
  }
};

// Whether a value that the last rows see and the first don't is infinite or NaN.
inline bool has_endless_values(const PairedRows& some) {
  const __m512i exponent = _mm512_set1_epi16(0x7f80);
  const int head_dim = some.layout.head_dim;
  for (int key = some.num_keys(0); key < some.most_keys; ++key) {
    const uint8_t* pairs = some.stored_values(key / kPanel) + int64_t(key % kPanel / 2) * head_dim * 4;
    const __mmask32 own = key % 2 ? 0xaaaaaaaa : 0x55555555;
    for (int d = 0; d < head_dim; d += kPanel) {
      const __m512i bits = _mm512_and_si512(_mm512_loadu_si512(pairs + 4 * d), exponent);
      if (_mm512_mask_cmpeq_epi16_mask(own, bits, exponent)) return true;
    }
  }
  return false;
}

// [num_rows][head_dim]
inline void round_queries(const PairedRows& some, uint16_t* queries) {
  const int head_dim = some.layout.head_dim;
  for (int row = 0; row < some.num_rows; ++row) {
    const float* query = some.rows.query(some.first_row + row);
    for (int d = 0; d < head_dim; d += 2 * kPanel) {
      const __m512bh halves = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(query + d + kPanel), _mm512_loadu_ps(query + d));
      _mm512_storeu_si512(queries + row * head_dim + d, __m512i(halves));
    }
  }
}

// Memory that is wanted soon: a chunk's keys or values, head_dim / 2 lines `step` bytes apart. It is asked for a few lines
// at a time between products. Asked for at once, it would fill the buffers for lines that are on their way, and the
// next load would wait for all of them.
struct LinesAhead {
  const uint8_t* first;
  int64_t step;

  void ask(int from, int count) const {
    for (int line = from; line < from + count; ++line) __builtin_prefetch(first + line * step);
  }
};

// The values of a chunk; past the last one, the first keys of the task that comes next, or nothing new.
inline LinesAhead values_ahead(const PairedRows& some, int chunk) {
  const AttentionTask& task = some.rows.task;
  const int past = chunk - some.num_chunks, block_size = some.layout.block_size;
  if (past < 0) return {some.stored_values(chunk), 64};
  if (past >= task.next_num_keys / kPanel) return {some.stored_values(some.num_chunks - 1), 0};
  const int key = past * kPanel;
  const uint8_t* piece = task.next_pieces + task.next_block_table[key / block_size] * task.block_bytes;
  return {piece + key % block_size * 4, int64_t(block_size) * 4};
}

// The keys of a chunk; past the last one, the values that are wanted first.
inline LinesAhead keys_ahead(const PairedRows& some, int chunk) {
  if (chunk >= some.num_chunks) return values_ahead(some, chunk - some.num_chunks);
  return {some.keys(chunk), int64_t(some.layout.block_size) * 4};
}

inline void copy_last_values(const PairedRows& some) {
  const int head_dim = some.layout.head_dim, count = some.most_keys % kPanel;
  const uint8_t* pairs = some.stored_values(some.num_chunks - 1);
  for (int key = 0; key < kPanel; key += 2) {
    const __mmask32 own = key + 1 < count ? 0xffffffff : key < count ? 0x55555555 : 0;
    for (int d = 0; d < head_dim; d += kPanel) {
      const int64_t at = (int64_t(key) / 2 * head_dim + d) * 2;
      _mm512_storeu_si512(some.last + at, _mm512_maskz_loadu_epi16(own, pairs + at * 2));
    }
  }
}

// Turns a row's scores into weights e^(scale * (s - max)) in bfloat16, zero beyond its keys; returns 1 / the sum of what
// they have become. Sixteen partial sums, then their sum in one order.
//
// Sixteen scores of a chunk, and its weights, are `step` numbers behind those of the one before.
inline float weigh_row(const PairedRows& some, int row, const float* scores, uint16_t* weights, int64_t step) {
  const int num_keys = some.num_keys(row), whole = num_keys / kPanel;
  const __mmask16 rest = __mmask16((1u << num_keys % kPanel) - 1);
  // A score that is NaN is no maximum; its weight makes the row NaN.
  const __m512 none = _mm512_set1_ps(-__builtin_inff());
  __m512 largest_of = none, other_largest_of = none;
  int chunk = 0;
  for (; chunk + 2 <= whole; chunk += 2) {
    largest_of = _mm512_max_ps(_mm512_loadu_ps(scores + chunk * step), largest_of);
    other_largest_of = _mm512_max_ps(_mm512_loadu_ps(scores + (chunk + 1) * step), other_largest_of);
  }
  if (chunk < whole) largest_of = _mm512_max_ps(_mm512_loadu_ps(scores + chunk * step), largest_of);
  if (rest) largest_of = _mm512_max_ps(_mm512_mask_loadu_ps(none, rest, scores + whole * step), largest_of);
  const float factor = some.rows.task.scale * 1.44269504088896341f;
  const float largest = _mm512_reduce_max_ps(_mm512_max_ps(largest_of, other_largest_of));
  const __m512 factors = _mm512_set1_ps(factor), shift = _mm512_set1_ps(largest * factor);
  const __m512bh ones = __m512bh(_mm512_set1_epi32(0x3f803f80));
  const auto weigh = [&](int place, __mmask16 keep) {
    const __m512 scaled = _mm512_fmsub_ps(_mm512_loadu_ps(scores + place * step), factors, shift);
    return _mm512_maskz_mov_ps(keep, power_of_two(scaled));
  };
  __m512 sum = _mm512_setzero_ps();
  const auto keep = [&](int place, __m512 first, __m512 second) {
    const __m512bh halves = _mm512_cvtne2ps_pbh(second, first);
    uint16_t* to = weights + place * step;
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_castsi512_si256(__m512i(halves)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + step), _mm512_extracti64x4_epi64(__m512i(halves), 1));
    sum = _mm512_dpbf16_ps(sum, halves, ones);
  };
  chunk = 0;
  for (; chunk + 2 <= whole; chunk += 2) keep(chunk, weigh(chunk, 0xffff), weigh(chunk + 1, 0xffff));
  if (num_keys % (2 * kPanel)) {
    const bool is_second = whole % 2;
    const __m512 first = weigh(chunk, is_second ? 0xffff : rest);
    keep(chunk, first, is_second ? weigh(chunk + 1, rest) : _mm512_setzero_ps());
    chunk += 2;
  }
  for (; chunk < some.num_chunks; ++chunk) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(weights + chunk * step), _mm256_setzero_si256());
  }
  return 1.0f / _mm512_reduce_add_ps(sum);
}

// attend(PairedRows) for all rows of a task, at most `together` at once.
template <typename Attend>
inline void attend_in_sets(const AttentionTask& task, float* scratch, int together, const Attend& attend) {
  const AttentionRows rows{task, scratch, 0};
  const Pieces pieces(rows);
  for (int first = 0; first < rows.num_rows(); first += together) {
    const int count = rows.num_rows() - first < together ? rows.num_rows() - first : together;
    const PairedRows some(rows, pieces, first, count);
    // Values that some of the rows don't see would reach them as 0 times infinity: then each row goes by itself.
    if (has_endless_values(some)) {
      for (int row = first; row < first + count; ++row) attend(PairedRows(rows, pieces, row, 1));
    } else {
      attend(some);
    }
  }
}

}  // namespace
}  // namespace pellucid
#endif
