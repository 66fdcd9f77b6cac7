// Initial values of a row: a function of (seed, id, column) only.
#pragma once

#include <cmath>
#include <cstdint>

#include "hash.h"

namespace elasticdl {

enum class Initial : int { kZeros, kConstant, kUniform, kNormal, kTruncatedNormal };

struct Initializer {
  Initial kind = Initial::kZeros;
  float low = 0;    // uniform: low; the normal ones: mean; constant: the value
  float high = 0;   // uniform: high; the normal ones: standard deviation
  uint64_t seed = 0;  // of job and table together

  void fill(int64_t id, float* row, uint32_t columns) const {
    if (kind == Initial::kZeros || kind == Initial::kConstant) {
      const float value = kind == Initial::kZeros ? 0.0f : low;
      for (uint32_t column = 0; column < columns; ++column) row[column] = value;
      return;
    }
    const uint64_t key = mix64(seed ^ mix64(static_cast<uint64_t>(id)));
    for (uint32_t column = 0; column < columns; ++column) row[column] = draw(key, column);
  }

 private:
  // In (0, 1), from 24 bits: exact in float.
  static double unit(uint64_t bits) { return (static_cast<double>(bits >> 40) + 0.5) * 0x1.0p-24; }

  float draw(uint64_t key, uint32_t column) const {
    for (uint64_t attempt = 0;; ++attempt) {
      const uint64_t one = mix64(key + (uint64_t{column} << 32) + 2 * attempt);
      if (kind == Initial::kUniform) return static_cast<float>(low + (double{high} - low) * unit(one));
      const uint64_t two = mix64(key + (uint64_t{column} << 32) + 2 * attempt + 1);
      const double normal = std::sqrt(-2.0 * std::log(unit(one))) * std::cos(2.0 * M_PI * unit(two));
      if (kind == Initial::kTruncatedNormal && std::fabs(normal) > 2.0) continue;  // within two deviations
      return static_cast<float>(low + double{high} * normal);
    }
  }
};

}  // namespace elasticdl
