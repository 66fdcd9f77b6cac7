// The memory limit of all tables of a ps together.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace elasticdl {

struct Budget {
  explicit Budget(uint64_t limit_bytes) : limit(limit_bytes) {}

  // Whether `growth` more bytes would exceed the limit.
  bool is_exceeded_by(size_t growth) const { return limit != 0 && growth != 0 && used.load() + growth > limit; }
  void change(size_t before, size_t after) { used.fetch_add(after - before); }  // unsigned: wraps around if it shrinks

  const uint64_t limit;  // bytes, 0: none
  std::atomic<size_t> used{0};
};

}  // namespace elasticdl
