// FarmHash's Fingerprint64 (farmhashna::Hash64), by which TensorFlow's `to_hash_bucket_fast` counts. The algorithm is
// frozen: a text has the same fingerprint for ever. Words are read as little-endian, as on every system of our wheels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace elasticdl::farmhash {

constexpr uint64_t kK0 = 0xc3a5c85c97cb3127ULL, kK1 = 0xb492b66fbe98f273ULL, kK2 = 0x9ae16a3b2f90404fULL;
constexpr uint64_t kSeed = 81;

inline uint64_t fetch64(const char* from) {
  uint64_t word;
  memcpy(&word, from, sizeof word);
  return word;
}
inline uint64_t fetch32(const char* from) {
  uint32_t word;
  memcpy(&word, from, sizeof word);
  return word;
}
inline uint64_t byte_at(const char* text, size_t index) { return static_cast<uint8_t>(text[index]); }

inline uint64_t rotate(uint64_t value, int by) { return (value >> by) | (value << (64 - by)); }
inline uint64_t mix(uint64_t value) { return value ^ (value >> 47); }
inline uint64_t hash_pair(uint64_t u, uint64_t v, uint64_t multiplier) {
  return mix((v ^ mix((u ^ v) * multiplier)) * multiplier) * multiplier;
}

inline uint64_t hash_to_16(const char* text, size_t size) {
  const uint64_t multiplier = kK2 + size * 2;
  if (size >= 8) {
    const uint64_t a = fetch64(text) + kK2, b = fetch64(text + size - 8);
    return hash_pair(rotate(b, 37) * multiplier + a, (rotate(a, 25) + b) * multiplier, multiplier);
  }
  if (size >= 4) return hash_pair(size + (fetch32(text) << 3), fetch32(text + size - 4), multiplier);
  if (size == 0) return kK2;
  const uint64_t y = byte_at(text, 0) + (byte_at(text, size >> 1) << 8);
  const uint64_t z = size + (byte_at(text, size - 1) << 2);
  return mix(y * kK2 ^ z * kK0) * kK2;
}

inline uint64_t hash_to_32(const char* text, size_t size) {
  const uint64_t multiplier = kK2 + size * 2;
  const uint64_t a = fetch64(text) * kK1, b = fetch64(text + 8);
  const uint64_t c = fetch64(text + size - 8) * multiplier, d = fetch64(text + size - 16) * kK2;
  return hash_pair(rotate(a + b, 43) + rotate(c, 30) + d, a + rotate(b + kK2, 18) + c, multiplier);
}

inline uint64_t hash_to_64(const char* text, size_t size) {
  const uint64_t multiplier = kK2 + size * 2;
  const uint64_t a = fetch64(text) * kK2, b = fetch64(text + 8);
  const uint64_t c = fetch64(text + size - 8) * multiplier, d = fetch64(text + size - 16) * kK2;
  const uint64_t y = rotate(a + b, 43) + rotate(c, 30) + d;
  const uint64_t z = hash_pair(y, a + rotate(b + kK2, 18) + c, multiplier);
  const uint64_t e = fetch64(text + 16) * multiplier, f = fetch64(text + 24);
  const uint64_t g = (y + fetch64(text + size - 32)) * multiplier, h = (z + fetch64(text + size - 24)) * multiplier;
  return hash_pair(rotate(e + f, 43) + rotate(g, 30) + h, e + rotate(f + a, 18) + g, multiplier);
}

using Pair = std::pair<uint64_t, uint64_t>;

inline Pair weak_hash(const char* text, uint64_t a, uint64_t b) {
  a += fetch64(text);
  b = rotate(b + a + fetch64(text + 24), 21);
  const uint64_t c = a;
  a += fetch64(text + 8) + fetch64(text + 16);
  return {a + fetch64(text + 24), b + rotate(a, 44) + c};
}

// The state of a text of more than 64 bytes: seven words, into which 64 bytes are mixed at a time.
struct State {
  uint64_t x, y, z;
  Pair v, w;

  void add_block(const char* block, uint64_t multiplier, uint64_t weight) {
    x = rotate(x + y + v.first + fetch64(block + 8), 37) * multiplier;
    y = rotate(y + v.second + fetch64(block + 48), 42) * multiplier;
    x ^= w.second * weight;
    y += v.first * weight + fetch64(block + 40);
    z = rotate(z + w.first, 33) * multiplier;
    v = weak_hash(block, v.second * multiplier, x + w.first);
    w = weak_hash(block + 32, z + w.second, y + fetch64(block + 16));
    std::swap(z, x);
  }
};

inline uint64_t hash_over_64(const char* text, size_t size) {
  const uint64_t y = kSeed * kK1 + 113;
  State state{kSeed * kK2 + fetch64(text), y, mix(y * kK2 + 113) * kK2, {0, 0}, {0, 0}};
  const char* const end = text + (size - 1) / 64 * 64;
  for (; text < end; text += 64) state.add_block(text, kK1, 1);
  const size_t tail = (size - 1) & 63;
  const uint64_t multiplier = kK1 + ((state.z & 255) << 1);
  state.w.first += tail;
  state.v.first += state.w.first;
  state.w.first += state.v.first;
  state.add_block(end + tail - 63, multiplier, 9);
  return hash_pair(hash_pair(state.v.first, state.w.first, multiplier) + mix(state.y) * kK0 + state.z,
                   hash_pair(state.v.second, state.w.second, multiplier) + state.x, multiplier);
}

inline uint64_t fingerprint(const char* text, size_t size) {
  if (size <= 16) return hash_to_16(text, size);
  if (size <= 32) return hash_to_32(text, size);
  return size <= 64 ? hash_to_64(text, size) : hash_over_64(text, size);
}

// Fingerprints of the `count` texts that lie between `offsets`.
template <typename Offset>
void fingerprints(const char* letters, const Offset* offsets, size_t count, uint64_t* hashes) {
  for (size_t index = 0; index < count; ++index)
    hashes[index] = fingerprint(letters + offsets[index], static_cast<size_t>(offsets[index + 1] - offsets[index]));
}

}  // namespace elasticdl::farmhash
