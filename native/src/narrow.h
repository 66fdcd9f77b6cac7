// Floats of 16 bits, for storing and for sending rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace elasticdl {

inline float as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

inline uint32_t as_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

// bfloat16

inline float widened(uint16_t value) { return as_float(uint32_t{value} << 16); }

inline uint16_t narrowed(float value) {  // to the nearest, ties to even; NaN stays NaN
  const uint32_t bits = as_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

// float16

inline float widened_half(uint16_t value) {
  const uint32_t sign = (uint32_t{value} & 0x8000u) << 16, rest = (uint32_t{value} & 0x7fffu) << 13;
  // The exponent's bias differs by 112; infinity and NaN need as much once more, and numbers without an
  // exponent are a multiple of 2^-24.
  if (rest >= 0x0f800000u) return as_float(sign | (rest + (224u << 23)));
  if (rest < 0x00800000u) return as_float(sign | as_bits(static_cast<float>(rest >> 13) * 0x1p-24f));
  return as_float(sign | (rest + (112u << 23)));
}

inline uint16_t narrowed_half(float value) {  // to the nearest, ties to even; too large becomes infinite
  const uint32_t bits = as_bits(value), sign = (bits >> 16) & 0x8000u, rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (rest >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (rest < 0x38800000u)  // adding 0.5 leaves the multiples of 2^-24 in the last bits, rounded
    return static_cast<uint16_t>(sign | (as_bits(as_float(rest) + 0.5f) - 0x3f000000u));
  return static_cast<uint16_t>(sign | ((rest - (112u << 23) + 0xfffu + ((rest >> 13) & 1)) >> 13));
}

}  // namespace elasticdl
