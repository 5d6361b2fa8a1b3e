// Read before attention.cpp where it is tested: the kernel's own memory comes from driver.cpp, which fills it with bytes
// that are no numbers, puts guards between its pieces, and can refuse it.
#pragma once

// What attention.cpp includes, before names are changed that these headers use themselves.
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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
// How far the next piece lies behind one of `size` bytes at `at`.
extern "C" size_t guarded_piece(uintptr_t at, size_t size);

#define posix_memalign guarded_memalign
#define free guarded_free
#define LENGTHWISE_KEEP 0
#define LENGTHWISE_PIECE(at, size) guarded_piece(at, size)
