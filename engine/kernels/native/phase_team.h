// Threads that work through the phases of a step together.
//
// A phase is a number of items; a thread claims one, runs it, and claims the next. The thread that finishes a phase's last
// item opens the next phase. So a phase waits for items that are being run, never for a thread: one that the system has
// taken off its core between two items delays nobody, which is what barriers did on a machine whose cores are also wanted
// by others. A phase of one item costs no traffic between cores, as the thread that opened it runs it.
//
// Between steps the helpers spin briefly and then park in the kernel: an idle engine burns no core.
#pragma once
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace pellucid {

inline void cpu_relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

constexpr int kMaxItems = (1 << 20) - 1;

// What a team runs. Items of a phase run in any order on any thread, those of a later phase after all of an earlier one.
class PhasedWork {
 public:
  virtual int num_items(int phase) const = 0;  // at most kMaxItems; asked once the phase before has ended
  virtual void run_item(int phase, int item, int thread) = 0;  // must not throw

 protected:
  ~PhasedWork() = default;
};

class PhaseTeam {
 public:
  explicit PhaseTeam(int size) : size_(size) {
    try {
      for (int id = 1; id < size_; ++id) helpers_.emplace_back([this, id] { help(id); });
    } catch (...) {
      stop();
      throw;
    }
  }

  ~PhaseTeam() { stop(); }

  PhaseTeam(const PhaseTeam&) = delete;
  PhaseTeam& operator=(const PhaseTeam&) = delete;

  int size() const { return size_; }

  // Runs all phases of work; the calling thread takes part as thread 0.
  void run(PhasedWork& work, int num_phases) {
    work_ = &work;
    num_phases_ = num_phases;
    first_serial_ = serial_of(word_.load(std::memory_order_relaxed)) + 1;
    is_running_.store(true, std::memory_order_relaxed);
    open(0);
    step_.fetch_add(1, std::memory_order_release);
    if (size_ > 1) step_.notify_all();
    take_part(0);
  }

 private:
  static constexpr int kSpins = 2000;

  // The word: serial number of the phase (24 bits, wrapping), items claimed (20), items in all (20).
  static constexpr uint32_t kSerialMask = (1u << 24) - 1;
  static constexpr uint64_t kOneClaimed = uint64_t(1) << 20;
  static uint64_t make_word(uint32_t serial, int total) { return uint64_t(serial & kSerialMask) << 40 | uint64_t(total); }
  static uint32_t serial_of(uint64_t word) { return uint32_t(word >> 40); }
  static uint32_t claimed_of(uint64_t word) { return uint32_t(word >> 20) & kMaxItems; }
  static uint32_t total_of(uint64_t word) { return uint32_t(word) & kMaxItems; }

  // Opens the first phase from `phase` on that has items, or ends the step. Called by one thread, when nothing runs.
  void open(int phase) {
    while (phase < num_phases_) {
      const int total = work_->num_items(phase);
      if (total > 0) {
        finished_.store(0, std::memory_order_relaxed);
        word_.store(make_word(first_serial_ + uint32_t(phase), total), std::memory_order_release);
        return;
      }
      ++phase;
    }
    word_.store(make_word(first_serial_ + uint32_t(num_phases_), 0), std::memory_order_release);
    is_running_.store(false, std::memory_order_release);
  }

  // Claims and runs items until the step has ended.
  void take_part(int thread) {
    int spins = 0;
    uint64_t word = word_.load(std::memory_order_acquire);
    while (is_running_.load(std::memory_order_acquire)) {
      if (claimed_of(word) >= total_of(word)) {
        if (++spins < kSpins) {
          cpu_relax();
        } else {
          std::this_thread::yield();
        }
        word = word_.load(std::memory_order_acquire);
        continue;
      }
      if (!word_.compare_exchange_weak(word, word + kOneClaimed, std::memory_order_acq_rel, std::memory_order_acquire)) {
        continue;
      }
      // The phase can't end before this item has: what it reads below stands still.
      spins = 0;
      const int phase = int((serial_of(word) - first_serial_) & kSerialMask), item = int(claimed_of(word));
      const uint32_t total = total_of(word);
      work_->run_item(phase, item, thread);
      if (finished_.fetch_add(1, std::memory_order_acq_rel) + 1 == total) open(phase + 1);
      word = word_.load(std::memory_order_acquire);
    }
  }

  void help(int id) {
    uint32_t seen = 0;
    for (;;) {
      for (int spins = 0; spins < kSpins && step_.load(std::memory_order_acquire) == seen; ++spins) cpu_relax();
      step_.wait(seen, std::memory_order_acquire);
      seen = step_.load(std::memory_order_acquire);
      if (stopping_.load(std::memory_order_relaxed)) return;
      take_part(id);
    }
  }

  void stop() {
    stopping_.store(true, std::memory_order_relaxed);
    step_.fetch_add(1, std::memory_order_release);
    step_.notify_all();
    for (std::thread& helper : helpers_) helper.join();
  }

  const int size_;
  // Written between steps, read only by a thread that holds an item of the step.
  PhasedWork* work_ = nullptr;
  int num_phases_ = 0;
  uint32_t first_serial_ = 0;
  std::atomic<uint32_t> step_{0};
  std::atomic<bool> stopping_{false};
  alignas(64) std::atomic<uint64_t> word_{0};
  std::atomic<bool> is_running_{false};
  alignas(64) std::atomic<uint32_t> finished_{0};
  std::vector<std::thread> helpers_;
};

}  // namespace pellucid
