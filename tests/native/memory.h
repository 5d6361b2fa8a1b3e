// Included before the sources of csrc/ that keep memory, where they are tested. The kernel's own memory then comes from the
// driver.cpp beside this file, which fills it with bytes that are no numbers, puts guards between its buffers, and can refuse it.
#pragma once

// What those sources include, before names are changed that these headers use themselves.
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <thread>
#include <unordered_map>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

extern "C" int guarded_memalign(void** at, size_t alignment, size_t size);
extern "C" void guarded_free(void* at);
// How many bytes after `at` the next buffer begins, if one of `size` bytes lies there.
extern "C" size_t guarded_bytes(uintptr_t at, size_t size);

#define posix_memalign guarded_memalign
#define free guarded_free
#define LENGTHWISE_KEEP_BYTES 0
#define LENGTHWISE_BUFFER_BYTES(at, size) guarded_bytes(at, size)
