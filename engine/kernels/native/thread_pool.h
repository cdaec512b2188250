// A fixed team of threads that runs one function together, with barriers inside it.
//
// Between runs the team parks in the kernel; at a barrier it spins briefly, then yields, so that an idle engine burns no
// core and two busy processes on two cores still make progress.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace pellucid {

inline void cpu_relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

class ThreadTeam {
 public:
  explicit ThreadTeam(int size) : size_(size) {
    for (int id = 1; id < size_; ++id) workers_.emplace_back([this, id] { work(id); });
  }

  ~ThreadTeam() {
    stopping_.store(true, std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return size_; }

  // Runs task(id) on every thread, the caller being id 0; returns when all are done.
  void run(const std::function<void(int)>& task) {
    task_ = &task;
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
    task(0);
    barrier();
  }

  // Waits for the whole team; everything written before it is visible after it.
  void barrier() {
    if (size_ == 1) return;
    const uint32_t phase = phase_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
      arrived_.store(0, std::memory_order_relaxed);
      phase_.store(phase + 1, std::memory_order_release);
      return;
    }
    for (int spins = 0; phase_.load(std::memory_order_acquire) == phase; ++spins) {
      if (spins < kSpins) {
        cpu_relax();
      } else {
        std::this_thread::yield();
      }
    }
  }

 private:
  static constexpr int kSpins = 4000;

  void work(int id) {
    uint32_t seen = 0;
    for (;;) {
      for (int spins = 0; spins < kSpins && generation_.load(std::memory_order_acquire) == seen; ++spins) cpu_relax();
      generation_.wait(seen, std::memory_order_acquire);
      seen = generation_.load(std::memory_order_acquire);
      if (stopping_.load(std::memory_order_relaxed)) return;
      (*task_)(id);
      barrier();
    }
  }

  const int size_;
  const std::function<void(int)>* task_ = nullptr;
  std::atomic<uint32_t> generation_{0};
  std::atomic<bool> stopping_{false};
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};
  std::vector<std::thread> workers_;
};

}  // namespace pellucid
