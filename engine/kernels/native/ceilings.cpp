// What this machine can do at most, measured: bytes read from memory, integer and bfloat16 dot products in a second.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "c_boundary.h"
#include "instruction_sets.h"
#include "packed_weights.h"
#include "phase_team.h"

namespace {

using namespace pellucid;

constexpr int kPasses = 7;             // the best counts: whatever disturbs makes a pass slower, never faster
constexpr double kBurstSeconds = 0.02; // of one pass of dot products

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Calls work(thread) on all threads at once; returns the seconds from the first start to the last end.
template <typename Work>
double time_together(int threads, Work work) {
  std::atomic<int> ready{0};
  std::vector<double> starts(size_t(threads), 0.0), ends(size_t(threads), 0.0);
  auto run = [&](int thread) {
    ready.fetch_add(1);
    while (ready.load() < threads) cpu_relax();
    starts[size_t(thread)] = now();
    work(thread);
    ends[size_t(thread)] = now();
  };
  std::vector<std::thread> helpers;
  for (int thread = 1; thread < threads; ++thread) helpers.emplace_back(run, thread);
  run(0);
  for (std::thread& helper : helpers) helper.join();
  return *std::max_element(ends.begin(), ends.end()) - *std::min_element(starts.begin(), starts.end());
}

// Reads `size` bytes in four streams.
uint64_t read_all(const uint8_t* data, int64_t size) {
  typedef uint64_t Words __attribute__((vector_size(16)));
  constexpr int64_t kStreams = 4, kLine = 64;
  const int64_t stream = size / kStreams / kLine * kLine;
  Words sum[kStreams] = {};
  for (int64_t at = 0; at < stream; at += kLine) {
#pragma GCC unroll 4
    for (int s = 0; s < kStreams; ++s) {
#pragma GCC unroll 4
      for (int part = 0; part < 4; ++part) {
        Words words;
        std::memcpy(&words, data + s * stream + at + part * int64_t(sizeof(Words)), sizeof(Words));
        sum[s] ^= words;
      }
    }
  }
  const Words all = sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
  return all[0] ^ all[1];
}

// Operations a second of `burst` on `threads` threads. Throws std::logic_error if its sums are wrong.
double peak_of(int64_t (*burst)(int64_t), int threads) {
  int64_t rounds = 1 << 12;
  double seconds = 0.0;
  while (seconds < kBurstSeconds / 2) {
    rounds *= 2;
    seconds = time_together(1, [&](int) { burst(rounds); });
  }
  double best = 0.0;
  for (int pass = 0; pass < kPasses; ++pass) {
    std::atomic<int64_t> operations{0};
    std::atomic<bool> is_wrong{false};
    seconds = time_together(threads, [&](int) {
      const int64_t done = burst(rounds);
      if (done < 0) is_wrong = true;
      operations += done;
    });
    if (is_wrong) throw std::logic_error("the sums of the products that were timed are wrong");
    best = std::max(best, double(operations.load()) / seconds);
  }
  return best;
}

const KernelTable& needed_kernels(const char* instruction_set) {
  const KernelTable* kernels = find_kernels(instruction_set);
  if (!kernels) throw std::invalid_argument(std::string("this machine has no ") + instruction_set);
  return *kernels;
}

void check_threads(int threads) {
  if (threads < 1 || threads > 256) throw std::invalid_argument("threads must lie in 1..256");
}

}  // namespace

extern "C" {

// Bytes a second that `threads` threads read of `bytes` bytes in huge pages, each its own part, first touched by itself.
PELLUCID_EXPORT int32_t pellucid_read_bandwidth(int64_t bytes, int32_t threads, double* bytes_a_second, char* message,
                                                int32_t size) {
  return guarded(message, size, [&] {
    check_threads(threads);
    const int64_t share = bytes / threads / 4096 * 4096;
    if (share <= 0) throw std::invalid_argument("bytes must be at least a page for each thread");
    const AlignedMemory memory(size_t(share * threads));
    time_together(threads, [&](int thread) { std::memset(memory.data() + thread * share, 1, size_t(share)); });
    std::atomic<uint64_t> seen{0};
    double best = 0.0;
    for (int pass = 0; pass < kPasses; ++pass) {
      const double seconds =
          time_together(threads, [&](int thread) { seen ^= read_all(memory.data() + thread * share, share); });
      best = std::max(best, double(share / 256 * 256 * threads) / seconds);
    }
    *bytes_a_second = best;
  });
}

// Operations a second of `instruction_set`'s integer dot products on `threads` threads, operands in registers.
PELLUCID_EXPORT int32_t pellucid_integer_peak(const char* instruction_set, int32_t threads, double* operations_a_second,
                                              char* message, int32_t size) {
  return guarded(message, size, [&] {
    check_threads(threads);
    *operations_a_second = peak_of(needed_kernels(instruction_set).integer_burst, threads);
  });
}

// The same of bfloat16 dot products that add in float32, by the fastest of the instructions that do them; `instruction` is
// its name.
PELLUCID_EXPORT int32_t pellucid_bfloat16_peak(const char* instruction_set, int32_t threads, double* operations_a_second,
                                               const char** instruction, char* message, int32_t size) {
  return guarded(message, size, [&] {
    check_threads(threads);
    const KernelTable& kernels = needed_kernels(instruction_set);
    *operations_a_second = peak_of(kernels.float_burst, threads);
    *instruction = kernels.float_instruction;
    if (kernels.bfloat16_burst(1) == 0) return;
    const double peak = peak_of(kernels.bfloat16_burst, threads);
    if (peak <= *operations_a_second) return;
    *operations_a_second = peak;
    *instruction = kernels.bfloat16_instruction;
  });
}
}
