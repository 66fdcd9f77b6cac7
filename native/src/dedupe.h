// How a worker prepares ids for a pull and gradients for a push.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "hash.h"

namespace elasticdl {

// The distinct ids in the order of their first occurrence; `inverse[i]` is the position of ids[i] among them.
inline std::vector<int64_t> unique(const int64_t* ids, size_t n, int32_t* inverse) {
  size_t capacity = 16;
  while (capacity < 2 * n) capacity *= 2;
  const size_t mask = capacity - 1;
  std::vector<int32_t> table(capacity, -1);
  std::vector<int64_t> distinct;
  distinct.reserve(n);
  constexpr size_t kAhead = 16;
  for (size_t i = 0; i < n; ++i) {
    if (i + kAhead < n) __builtin_prefetch(&table[(mix64(static_cast<uint64_t>(ids[i + kAhead])) >> 20) & mask], 1, 1);
    size_t at = (mix64(static_cast<uint64_t>(ids[i])) >> 20) & mask;
    while (table[at] >= 0 && distinct[table[at]] != ids[i]) at = (at + 1) & mask;
    if (table[at] < 0) {
      table[at] = static_cast<int32_t>(distinct.size());
      distinct.push_back(ids[i]);
    }
    inverse[i] = table[at];
  }
  return distinct;
}

// For common numbers of columns the compiler knows the number, and a row is a few instructions.
template <uint32_t kColumns>
inline void sum_rows(const float* rows, const int32_t* inverse, size_t n, uint32_t any_columns, float* out) {
  const uint32_t columns = kColumns ? kColumns : any_columns;
  constexpr size_t kAhead = 16;
  for (size_t i = 0; i < n; ++i) {
    if (i + kAhead < n) __builtin_prefetch(out + static_cast<size_t>(inverse[i + kAhead]) * columns, 1, 3);
    float* __restrict to = out + static_cast<size_t>(inverse[i]) * columns;
    const float* __restrict from = rows + i * columns;
    for (uint32_t c = 0; c < columns; ++c) to[c] += from[c];
  }
}

// out[inverse[i]] += rows[i], in the order of i; the same sums on every run.
inline void segment_sum(const float* rows, const int32_t* inverse, size_t n, uint32_t columns, float* out, size_t groups) {
  std::memset(out, 0, groups * columns * 4);
  switch (columns) {
    case 1: return sum_rows<1>(rows, inverse, n, columns, out);
    case 8: return sum_rows<8>(rows, inverse, n, columns, out);
    case 16: return sum_rows<16>(rows, inverse, n, columns, out);
    case 32: return sum_rows<32>(rows, inverse, n, columns, out);
    case 64: return sum_rows<64>(rows, inverse, n, columns, out);
    default: return sum_rows<0>(rows, inverse, n, columns, out);
  }
}

// The distinct ids of a batch, grouped by the ps that owns their slot and within it by stripe, so that the ps reads and
// writes in order.
struct Plan {
  std::vector<int64_t> ids;      // distinct and grouped
  std::vector<int32_t> inverse;  // the position of each id of the batch among them
  std::vector<int64_t> counts;   // ids of each ps
};

// Groups distinct `ids`; `position[i]` becomes the position of ids[i].
inline std::vector<int64_t> group(const std::vector<int64_t>& ids, const uint16_t* owner, uint32_t owners,
                                  std::vector<int64_t>& grouped, std::vector<int32_t>& position) {
  const size_t n = ids.size();
  std::vector<uint32_t> key(n);
  std::vector<size_t> begin(size_t{owners} * kStripes + 1, 0);
  for (size_t i = 0; i < n; ++i) {
    const uint32_t slot = slot_of(mix64(static_cast<uint64_t>(ids[i])));
    key[i] = owner[slot] * kStripes + stripe_of(slot);
    ++begin[key[i] + 1];
  }
  for (size_t k = 0; k + 1 < begin.size(); ++k) begin[k + 1] += begin[k];
  std::vector<int64_t> counts(owners);
  for (uint32_t o = 0; o < owners; ++o)
    counts[o] = static_cast<int64_t>(begin[size_t{o + 1} * kStripes] - begin[size_t{o} * kStripes]);
  grouped.resize(n);
  position.resize(n);
  for (size_t i = 0; i < n; ++i) {
    const size_t to = begin[key[i]]++;
    grouped[to] = ids[i];
    position[i] = static_cast<int32_t>(to);
  }
  return counts;
}

inline Plan plan(const int64_t* ids, size_t n, const uint16_t* owner, uint32_t owners) {
  Plan plan;
  plan.inverse.resize(n);
  const std::vector<int64_t> distinct = unique(ids, n, plan.inverse.data());
  std::vector<int32_t> position;
  plan.counts = group(distinct, owner, owners, plan.ids, position);
  for (size_t i = 0; i < n; ++i) plan.inverse[i] = position[plan.inverse[i]];
  return plan;
}

// The number of ids in slots that are not in `held`.
inline size_t count_foreign(const int64_t* ids, size_t n, const uint8_t* held) {
  size_t foreign = 0;
  for (size_t i = 0; i < n; ++i) foreign += !held[slot_of(mix64(static_cast<uint64_t>(ids[i])))];
  return foreign;
}

// Sets the flag of every slot that has one of the ids.
inline void touch(const int64_t* ids, size_t n, uint8_t* flags) {
  for (size_t i = 0; i < n; ++i) flags[slot_of(mix64(static_cast<uint64_t>(ids[i])))] = 1;
}

// Records that these slots have applied push `number` of a sender, see ps/tables/applied_pushes.py.
inline void mark(int64_t* top, uint64_t* window, const uint8_t* flags, int64_t number) {
  for (uint32_t s = 0; s < kSlots; ++s) {
    if (!flags[s]) continue;
    const int64_t ahead = number - top[s];
    if (ahead > 0) {
      window[s] = (ahead < 64 ? window[s] << ahead : 0) | 1;
      top[s] = number;
    } else if (ahead > -64) {
      window[s] |= uint64_t{1} << -ahead;
    }
  }
}

// The first value that is not finite, or n.
inline size_t first_not_finite(const float* values, size_t n) {
  constexpr size_t kBlock = 4096;
  for (size_t start = 0; start < n; start += kBlock) {
    const size_t stop = std::min(n, start + kBlock);
    uint32_t bad = 0;
    for (size_t i = start; i < stop; ++i) {
      uint32_t bits;
      std::memcpy(&bits, values + i, 4);
      bad |= static_cast<uint32_t>((bits & 0x7f800000u) == 0x7f800000u);
    }
    if (!bad) continue;
    for (size_t i = start; i < stop; ++i) {
      uint32_t bits;
      std::memcpy(&bits, values + i, 4);
      if ((bits & 0x7f800000u) == 0x7f800000u) return i;
    }
  }
  return n;
}

}  // namespace elasticdl
