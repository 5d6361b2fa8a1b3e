// The threads that calls run on.
//
// Where torch computes with OpenMP, its own threads do this work. They stay awake for some milliseconds after each of torch's
// operations, so they begin at once, where other threads would have to compete with them for the cores. As many of them as torch
// uses take part in every call, even if some find nothing to do: the runtime ends and starts threads when their number changes.
// As for torch, a child of fork() must not use several threads if its parent has.
//
// Elsewhere there is a pool of threads that sleep between calls and live as long as the process.

#include "threads.h"

#include <fenv.h>
#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace {

// Work and who does it. `begun` is written before threads read the state, and `ended` read after they have written results:
// ThreadSanitizer follows these, but not what happens inside of an OpenMP runtime.
struct Region {
  void (*work)(void*, i64);
  void* state;
  i64 limit;
  std::thread::id caller = std::this_thread::get_id();
  fenv_t environment;  // whether the caller flushes denormals, and how it rounds
  std::atomic<i64> begun, ended, others;

  Region(void (*work)(void*, i64), void* state, i64 limit) : work(work), state(state), limit(limit) {
    fegetenv(&environment);
    ended.store(0, std::memory_order_relaxed);
    others.store(0, std::memory_order_relaxed);
    begun.store(1, std::memory_order_release);
  }
  ~Region() { ended.load(std::memory_order_acquire); }
};

void enter(void* argument) {
  Region* region = (Region*)argument;
  region->begun.load(std::memory_order_acquire);
  const bool is_caller = std::this_thread::get_id() == region->caller;
  const i64 thread = is_caller ? 0 : 1 + region->others.fetch_add(1, std::memory_order_relaxed);
  if (thread < region->limit) {
    fenv_t own;
    fegetenv(&own);
    fesetenv(&region->environment);
    region->work(region->state, thread);
    fesetenv(&own);
  }
  region->ended.fetch_add(1, std::memory_order_release);
}

class Pool {
 public:
  // Returns false where another thread uses the pool.
  bool run(Region& next, i64 count) {
    std::unique_lock<std::mutex> user(in_use, std::try_to_lock);
    if (!user) return false;
    std::unique_lock<std::mutex> lock(mutex);
    try {
      for (; threads < count - 1; threads++) std::thread(&Pool::live, this).detach();
    } catch (...) {  // the system refuses more threads: those that there are do the work
    }
    region = &next;
    wanted = min(threads, count - 1);
    lock.unlock();
    wake.notify_all();
    enter(&next);
    lock.lock();
    wanted = 0;  // who has not woken up by now finds nothing to do
    idle.wait(lock, [this] { return working == 0; });
    return true;
  }

 private:
  std::mutex in_use, mutex;  // `mutex` guards what follows
  std::condition_variable wake, idle;
  Region* region = nullptr;
  i64 threads = 0, wanted = 0, working = 0;

  void live() {
    std::unique_lock<std::mutex> lock(mutex);
    while (true) {
      wake.wait(lock, [this] { return wanted > 0; });
      wanted--;
      working++;
      Region* own = region;
      lock.unlock();
      enter(own);
      lock.lock();
      if (--working == 0) idle.notify_one();
    }
  }
};

std::atomic<Pool*> pool;  // never deleted: its threads may outlive everything else

Pool& the_pool() {
  Pool* found = pool.load();
  if (found) return *found;
  static const int registered = pthread_atfork(nullptr, nullptr, [] { pool.store(nullptr); });  // a child has none of its threads
  (void)registered;
  Pool* made = new Pool;
  if (pool.compare_exchange_strong(found, made)) return *made;
  delete made;
  return *found;
}

}  // namespace

void run_on_threads(const Threads& threads, i64 limit, void (*work)(void*, i64), void* state) {
  limit = min(limit, threads.count);
  if (limit <= 1) return work(state, 0);
  Region region(work, state, limit);
  if (threads.openmp)
    threads.openmp(enter, &region, (unsigned)threads.count, 0);
  else if (!the_pool().run(region, limit))
    enter(&region);
}
