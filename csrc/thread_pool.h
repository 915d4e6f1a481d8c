// A pool of threads that spins briefly between jobs, then sleeps. A job never waits for a thread that did not wake up in time. Which thread runs which item never reaches a result:
// every item writes its own outputs in an order fixed by the contract.
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace samebits {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return int(workers_.size()) + 1; }

  // Calls item(0) … item(count-1), in any order, on all threads; returns when all are done.
  // Floating-point control is the contract's (docs/numerics.md 1.1.3) in every item.
  template <class Item>
  void run(int64_t count, const Item& item) {
    run_erased(count, [](const void* f, int64_t i) { (*static_cast<const Item*>(f))(i); }, &item);
  }

  // The same for row(0) … row(rows-1), `share` neighbouring rows an item.
  template <class Row>
  void run_rows(int64_t rows, int64_t share, const Row& row) {
    run((rows + share - 1) / share, [&](int64_t item) {
      for (int64_t r = item * share; r < (item + 1) * share && r < rows; ++r) row(r);
    });
  }

  // One operation at a time may use a pool; bindings hold this for the length of an operation.
  std::mutex& operation_mutex() { return operation_mutex_; }
  // The threads of a pool do not survive fork(); true in a child process that inherited one.
  bool lost_to_fork() const;

 private:
  using Call = void (*)(const void*, int64_t);
  void run_erased(int64_t count, Call call, const void* item);
  void drain();
  void work();

  std::vector<std::thread> workers_;
  std::mutex operation_mutex_;
  Call call_ = nullptr;
  const void* item_ = nullptr;
  int64_t count_ = 0;
  int owner_pid_;
  std::atomic<bool> stop_{false};
  alignas(64) std::atomic<int64_t> next_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<bool> open_{false};        // items of the current job may be taken
  alignas(64) std::atomic<int> taking_part_{0};     // workers that may be taking them
};

// Sets round-to-nearest without flushing of denormals, and restores the caller's setting.
class FloatEnvironment {
 public:
  FloatEnvironment();
  ~FloatEnvironment();
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
  uint64_t saved_;
};

}  // namespace samebits
