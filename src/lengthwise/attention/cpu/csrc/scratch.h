// The memory that a thread computes in. One allocation serves all buffers, and the next call of the thread uses it again.
#pragma once

#include <stdlib.h>

#include "integers.h"

// How many bytes of the allocation a buffer of `size` bytes at address `at` takes. Tests put guards between the buffers.
#if !defined(LENGTHWISE_BUFFER_BYTES)
#define LENGTHWISE_BUFFER_BYTES(at, size) (((size) + 63) / 64 * 64)
#endif

namespace {

struct ThreadMemory {
  void* data = nullptr;
  i64 size = 0;

  ~ThreadMemory() { release(); }
  void release() {
    free(data);
    data = nullptr;
    size = 0;
  }
  // Makes sure that there are `wanted` bytes, whatever they hold. Returns false where there is no memory.
  bool reserve(i64 wanted) {
    if (wanted <= size) return true;
    release();
    if (posix_memalign(&data, 64, (size_t)wanted)) {
      data = nullptr;
      return false;
    }
    size = wanted;
    return true;
  }
};
thread_local ThreadMemory thread_memory;

}  // namespace
