#include "thread_pool.h"

#include <unistd.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace samebits {
namespace {

inline void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins this many pauses (about 30 us on current CPUs) before giving the core away: the gap between two operations of
// a decoding step is a few microseconds, a sleeping thread takes 50 us or more to wake.
constexpr int kSpins = 1 << 11;

#if defined(__x86_64__)
constexpr uint32_t kMxcsrDefault = 0x1f80;  // exceptions masked, nearest, no flush-to-zero, no denormals-are-zero
#endif

}  // namespace

FloatEnvironment::FloatEnvironment() {
#if defined(__x86_64__)
  saved_ = _mm_getcsr();
  if ((saved_ & ~0x3full) != kMxcsrDefault) _mm_setcsr(kMxcsrDefault);
#elif defined(__aarch64__)
  asm volatile("mrs %0, fpcr" : "=r"(saved_));
  asm volatile("msr fpcr, %0" ::"r"(uint64_t{0}));
#else
  saved_ = 0;
#endif
}

FloatEnvironment::~FloatEnvironment() {
#if defined(__x86_64__)
  if ((saved_ & ~0x3full) != kMxcsrDefault) _mm_setcsr(uint32_t(saved_));
#elif defined(__aarch64__)
  asm volatile("msr fpcr, %0" ::"r"(saved_));
#endif
}

ThreadPool::ThreadPool(int threads) : owner_pid_(getpid()) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
}

ThreadPool::~ThreadPool() {
  if (lost_to_fork()) {
    for (auto& worker : workers_) worker.detach();  // these threads do not exist in this process
    return;
  }
  stop_.store(true);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (auto& worker : workers_) worker.join();
}

bool ThreadPool::lost_to_fork() const { return owner_pid_ != getpid(); }

void ThreadPool::drain() {
  for (int64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count_;) call_(item_, i);
}

void ThreadPool::run_erased(int64_t count, Call call, const void* item) {
  FloatEnvironment environment;
  if (count <= 0) return;
  if (workers_.empty() || count == 1) {
    for (int64_t i = 0; i < count; ++i) call(item, i);
    return;
  }
  call_ = call;
  item_ = item;
  count_ = count;
  next_.store(0, std::memory_order_relaxed);
  open_.store(true);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  drain();
  // Every item is taken now. Workers that take part are waited for; one that still sleeps is not: it will find the job closed.
  open_.store(false);
  for (int spins = 0; taking_part_.load() != 0; ++spins) {
    if (spins < kSpins) pause();
    else std::this_thread::yield();
  }
}

// A worker says that it takes part before it looks whether the job is open; `run` closes the job before it looks who takes part.
// All four accesses are sequentially consistent, so one of the two sees the other: nobody reads a job while the next is written.
void ThreadPool::work() {
  FloatEnvironment environment;
  for (uint32_t seen = 0;;) {
    int spins = 0;
    while (generation_.load(std::memory_order_acquire) == seen) {
      if (++spins < kSpins) pause();
      else generation_.wait(seen, std::memory_order_acquire);
    }
    seen = generation_.load(std::memory_order_acquire);
    if (stop_.load()) return;
    taking_part_.fetch_add(1);
    if (open_.load()) drain();
    taking_part_.fetch_sub(1);
  }
}

}  // namespace samebits
