// Gradients of the objectives of boosting, row by row: with additions, multiplications and divisions only, so that the
// bits of a row depend neither on where it lies nor on the processor.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "../clones.h"

namespace elasticdl::boosting {

enum class Objective : int { kSquared, kLogistic, kPoisson, kGamma, kTweedie, kPseudoHuber, kHinge, kSoftmax };

constexpr float kMinHessian = 1e-16f;  // XGBoost's

// e^x, within 2 units in the last place; infinities and numbers out of range become the nearest finite result.
inline float exponential(float x) {
  x = std::min(std::max(x, -87.3f), 88.3f);
  constexpr float kRound = 12582912.0f;  // 1.5 · 2^23: adding it leaves no digits behind the point
  const float shifted = x * 1.44269504f + kRound;
  const float whole = shifted - kRound;
  const float rest = (x - whole * 0.693359375f) - whole * -2.12194440e-4f;
  float sum = 1.9875691500e-4f;
  sum = sum * rest + 1.3981999507e-3f;
  sum = sum * rest + 8.3334519073e-3f;
  sum = sum * rest + 4.1665795894e-2f;
  sum = sum * rest + 1.6666665459e-1f;
  sum = sum * rest + 5.0000001201e-1f;
  sum = sum * (rest * rest) + rest + 1.0f;
  const int32_t bits = (static_cast<int32_t>(whole) + 127) << 23;
  float power;
  std::memcpy(&power, &bits, sizeof power);
  return sum * power;
}

// The rows [begin, end) of a part, and where their gradients go. Arrays of a multi-class objective have `classes` columns.
struct Rows {
  const float* __restrict margins;
  const float* __restrict labels;
  const float* __restrict weights;  // null: all are 1
  float* __restrict gradients;
  float* __restrict hessians;
  float parameter;        // of the objective: the power of Tweedie, the step of Poisson, the slope of pseudo-Huber
  float positive_weight;  // of rows whose label is 1
  uint32_t classes;
};

namespace objectives {

#define ROWS const Rows &rows, size_t begin, size_t end

ELASTICDL_CLONES inline void squared(ROWS) {
  for (size_t i = begin; i < end; ++i) {
    rows.gradients[i] = rows.margins[i] - rows.labels[i];
    rows.hessians[i] = 1.0f;
  }
}

ELASTICDL_CLONES inline void logistic(ROWS) {
  const float extra = rows.positive_weight - 1.0f;
  for (size_t i = begin; i < end; ++i) {
    const float label = rows.labels[i], weight = 1.0f + extra * label;
    const float p = 1.0f / (1.0f + exponential(-rows.margins[i]));
    rows.gradients[i] = (p - label) * weight;
    rows.hessians[i] = std::max(p * (1.0f - p), kMinHessian) * weight;
  }
}

ELASTICDL_CLONES inline void poisson(ROWS) {
  const float step = exponential(rows.parameter);
  for (size_t i = begin; i < end; ++i) {
    const float mean = exponential(rows.margins[i]);
    rows.gradients[i] = mean - rows.labels[i];
    rows.hessians[i] = mean * step;
  }
}

ELASTICDL_CLONES inline void gamma(ROWS) {
  for (size_t i = begin; i < end; ++i) {
    const float ratio = rows.labels[i] * exponential(-rows.margins[i]);
    rows.gradients[i] = 1.0f - ratio;
    rows.hessians[i] = ratio;
  }
}

ELASTICDL_CLONES inline void tweedie(ROWS) {
  const float one = 1.0f - rows.parameter, two = 2.0f - rows.parameter;
  for (size_t i = begin; i < end; ++i) {
    const float first = rows.labels[i] * exponential(one * rows.margins[i]), second = exponential(two * rows.margins[i]);
    rows.gradients[i] = second - first;
    rows.hessians[i] = two * second - one * first;
  }
}

ELASTICDL_CLONES inline void pseudo_huber(ROWS) {
  const float slope2 = rows.parameter * rows.parameter;
  for (size_t i = begin; i < end; ++i) {
    const float error = rows.margins[i] - rows.labels[i];
    const float scale = 1.0f + error * error / slope2, root = std::sqrt(scale);
    rows.gradients[i] = error / root;
    rows.hessians[i] = 1.0f / (scale * root);
  }
}

ELASTICDL_CLONES inline void hinge(ROWS) {
  for (size_t i = begin; i < end; ++i) {
    const float sign = 2.0f * rows.labels[i] - 1.0f;
    const bool is_inside = rows.margins[i] * sign < 1.0f;
    rows.gradients[i] = is_inside ? -sign : 0.0f;
    rows.hessians[i] = is_inside ? 1.0f : kMinHessian;
  }
}

ELASTICDL_CLONES inline void softmax(ROWS) {
  const uint32_t classes = rows.classes;
  for (size_t i = begin; i < end; ++i) {
    const float* margins = rows.margins + i * classes;
    float *gradients = rows.gradients + i * classes, *hessians = rows.hessians + i * classes;
    float largest = margins[0], sum = 0.0f;
    for (uint32_t c = 1; c < classes; ++c) largest = std::max(largest, margins[c]);
    for (uint32_t c = 0; c < classes; ++c) sum += gradients[c] = exponential(margins[c] - largest);
    const auto label = static_cast<uint32_t>(rows.labels[i]);
    for (uint32_t c = 0; c < classes; ++c) {
      const float p = gradients[c] / sum;
      gradients[c] = p - (c == label ? 1.0f : 0.0f);
      hessians[c] = std::max(2.0f * p * (1.0f - p), kMinHessian);
    }
  }
}

#undef ROWS

}  // namespace objectives

inline void compute_gradients(Objective objective, const Rows& rows, size_t begin, size_t end) {
  switch (objective) {
    case Objective::kSquared: objectives::squared(rows, begin, end); break;
    case Objective::kLogistic: objectives::logistic(rows, begin, end); break;
    case Objective::kPoisson: objectives::poisson(rows, begin, end); break;
    case Objective::kGamma: objectives::gamma(rows, begin, end); break;
    case Objective::kTweedie: objectives::tweedie(rows, begin, end); break;
    case Objective::kPseudoHuber: objectives::pseudo_huber(rows, begin, end); break;
    case Objective::kHinge: objectives::hinge(rows, begin, end); break;
    case Objective::kSoftmax: objectives::softmax(rows, begin, end); break;
  }
  if (rows.weights == nullptr) return;
  for (size_t i = begin; i < end; ++i)
    for (uint32_t c = 0; c < rows.classes; ++c) {
      rows.gradients[i * rows.classes + c] *= rows.weights[i];
      rows.hessians[i * rows.classes + c] *= rows.weights[i];
    }
}

// A sample of rows that is a function of (seed, round, record): the others get no gradient.
ELASTICDL_CLONES inline void sample_rows(const Rows& rows, size_t begin, size_t end, uint64_t first_record,
                                         uint64_t key, uint32_t threshold) {
  for (size_t i = begin; i < end; ++i) {
    uint64_t x = key + (first_record + i) * 0x9E3779B97F4A7C15ull;  // SplitMix64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    const float kept = static_cast<uint32_t>((x ^ (x >> 31)) >> 32) < threshold ? 1.0f : 0.0f;
    for (uint32_t c = 0; c < rows.classes; ++c) {
      rows.gradients[i * rows.classes + c] *= kept;
      rows.hessians[i * rows.classes + c] *= kept;
    }
  }
}

// The largest magnitude; infinite or no number if there is such a value. Magnitudes are ordered as their bits are.
ELASTICDL_CLONES inline float largest_magnitude(const float* __restrict values, size_t begin, size_t end) {
  int32_t largest = 0;
  for (size_t i = begin; i < end; ++i) {
    int32_t bits;
    std::memcpy(&bits, values + i, sizeof bits);
    largest = std::max(largest, bits & 0x7FFFFFFF);
  }
  float magnitude;
  std::memcpy(&magnitude, &largest, sizeof magnitude);
  return magnitude;
}

// Rounds to multiples of a grid, by adding and subtracting a number so large that float32 has no digits below the grid.
ELASTICDL_CLONES inline void snap(float* __restrict values, size_t begin, size_t end, float shift) {
  for (size_t i = begin; i < end; ++i) values[i] = (values[i] + shift) - shift;
}

}  // namespace elasticdl::boosting
