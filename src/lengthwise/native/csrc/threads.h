// Running a function on several threads at once.
#pragma once

#include "integers.h"

// GOMP_parallel, to which GCC compiles a parallel region of OpenMP: calls work(state) on `threads` threads, of which the caller
// is one. LLVM's and Intel's runtimes have it too, on Linux.
typedef void (*OpenMPParallel)(void (*work)(void*), void* state, unsigned threads, unsigned flags);

// The threads that a call may use.
struct Threads {
  OpenMPParallel openmp;  // of the runtime that torch computes with; null where there is none
  i64 count;              // of torch's threads
};

// Calls work(state, thread) on up to `limit` threads and returns when all of them have returned. The caller is thread 0; the others
// are numbered from 1 as they begin. However many there are, the work must be done when one call after the other has returned: fewer
// threads may be free.
void run_on_threads(const Threads& threads, i64 limit, void (*work)(void* state, i64 thread), void* state);
