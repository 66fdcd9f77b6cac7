// Prefetches memory that is needed a moment later.
#pragma once

// For GCC a function that only prefetches has no effect, and calls of it are removed unless they were inlined before.
#define ELASTICDL_PREFETCHES __attribute__((always_inline)) inline

namespace elasticdl {

// `near`: into the L1 cache, which is best for rows that are only read: half the time of L2 (measured on Zen 4). Rows
// that are written, even if only their metadata, need more lines than L1 accepts at a time: they go into L2, which takes
// two thirds of the time.
ELASTICDL_PREFETCHES void prefetch(const void* at, bool near) {
  if (near)
    __builtin_prefetch(at, 0, 3);
  else
    __builtin_prefetch(at, 0, 1);
}

}  // namespace elasticdl
