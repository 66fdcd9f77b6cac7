// Maps an id to its slot (which has an owner) and its stripe (which has a lock).
#pragma once

#include <cstdint>

namespace elasticdl {

constexpr uint32_t kSlots = 1024;
constexpr uint32_t kStripes = 64;

// A bijection that spreads any ids, consecutive ones and multiples of a power of two alike (splitmix64's finaliser).
inline uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

inline uint32_t slot_of(uint64_t mixed) { return static_cast<uint32_t>(mixed) & (kSlots - 1); }
inline uint32_t stripe_of(uint32_t slot) { return slot & (kStripes - 1); }

}  // namespace elasticdl
