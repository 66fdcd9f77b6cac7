// Updates one row: gradient, values and state in one pass. The formulas are those of the frameworks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "clones.h"

namespace elasticdl {

enum class Rule : int { kSgd, kMomentum, kAdagrad, kRowwiseAdagrad, kAdam, kAmsgrad, kAdamW, kFtrl, kRmsprop };
// torch and Keras differ in the position of epsilon and in whether the velocity includes the learning rate.
enum class Dialect : int { kTorch, kKeras };

struct Hyper {
  Rule rule = Rule::kSgd;
  Dialect dialect = Dialect::kTorch;
  float epsilon = 0;
  float momentum = 0;            // momentum, rmsprop
  bool nesterov = false;         // momentum
  float beta1 = 0, beta2 = 0;    // adam, amsgrad, adamw; rmsprop: beta2 is rho
  float initial = 0;             // first value of the accumulators of adagrad and ftrl
  float weight_decay = 0;        // adamw
  float l1 = 0, l2 = 0;          // ftrl; l2 of the others is added to the gradient by the table
  float power = -0.5f;           // ftrl
  float beta = 0;                // ftrl
  bool centered = false;         // rmsprop

  // Floats of state behind the values of a row.
  uint32_t state(uint32_t columns) const {
    switch (rule) {
      case Rule::kSgd: return 0;
      case Rule::kMomentum: case Rule::kAdagrad: return columns;
      case Rule::kRowwiseAdagrad: return 1;
      case Rule::kAdam: case Rule::kAdamW: case Rule::kFtrl: return 2 * columns;
      case Rule::kAmsgrad: return 3 * columns;
      case Rule::kRmsprop: return columns * (1 + (momentum != 0) + centered);
    }
    return 0;
  }

  void begin(float* state, uint32_t columns) const {
    std::fill_n(state, this->state(columns), 0.0f);
    if (rule == Rule::kAdagrad || rule == Rule::kFtrl) std::fill_n(state, columns, initial);
    if (rule == Rule::kRowwiseAdagrad) state[0] = initial;
  }
};

// Factors that are the same for all rows of a push.
struct Scale {
  float rate;         // learning rate
  float correction1;  // 1 - beta1^step
  float correction2;  // 1 - beta2^step

  static Scale at(const Hyper& hyper, double rate, uint64_t step) {
    const double n = static_cast<double>(std::max<uint64_t>(step, 1));
    return {static_cast<float>(rate), static_cast<float>(1 - std::pow(double{hyper.beta1}, n)),
            static_cast<float>(1 - std::pow(double{hyper.beta2}, n))};
  }
};

namespace rules {

#define ROW float *__restrict w, float *__restrict s, const float *__restrict g, uint32_t n, const Hyper &h, const Scale &c

ELASTICDL_CLONES inline void sgd(ROW) {
  (void)s, (void)h;
  for (uint32_t i = 0; i < n; ++i) w[i] -= c.rate * g[i];
}

ELASTICDL_CLONES inline void momentum(ROW) {
  const float mu = h.momentum, rate = c.rate;
  if (h.dialect == Dialect::kTorch) {
    for (uint32_t i = 0; i < n; ++i) {
      s[i] = mu * s[i] + g[i];
      w[i] -= rate * (h.nesterov ? g[i] + mu * s[i] : s[i]);
    }
  } else {
    for (uint32_t i = 0; i < n; ++i) {
      s[i] = mu * s[i] - rate * g[i];
      w[i] += h.nesterov ? mu * s[i] - rate * g[i] : s[i];
    }
  }
}

ELASTICDL_CLONES inline void adagrad(ROW) {
  const float rate = c.rate, eps = h.epsilon;
  if (h.dialect == Dialect::kTorch) {
    for (uint32_t i = 0; i < n; ++i) {
      s[i] += g[i] * g[i];
      w[i] -= rate * g[i] / (std::sqrt(s[i]) + eps);
    }
  } else {
    for (uint32_t i = 0; i < n; ++i) {
      s[i] += g[i] * g[i];
      w[i] -= rate * g[i] / std::sqrt(s[i] + eps);
    }
  }
}

inline void rowwise_adagrad(ROW) {
  float squares = 0;
  for (uint32_t i = 0; i < n; ++i) squares += g[i] * g[i];
  s[0] += squares / static_cast<float>(n);
  const float rate = c.rate / (std::sqrt(s[0]) + h.epsilon);
  for (uint32_t i = 0; i < n; ++i) w[i] -= rate * g[i];
}

// The last part of adam, amsgrad and adamw: the step is divided by the root of `v`.
ELASTICDL_CLONES inline void adam_step(float* __restrict w, const float* __restrict m, const float* __restrict v,
                                       uint32_t n, const Hyper& h, const Scale& c) {
  const float eps = h.epsilon;
  if (h.dialect == Dialect::kTorch) {
    const float rate = c.rate / c.correction1, root = std::sqrt(c.correction2);
    for (uint32_t i = 0; i < n; ++i) w[i] -= rate * (m[i] / (std::sqrt(v[i]) / root + eps));
  } else {
    const float rate = c.rate * std::sqrt(c.correction2) / c.correction1;
    for (uint32_t i = 0; i < n; ++i) w[i] -= m[i] * rate / (std::sqrt(v[i]) + eps);
  }
}

ELASTICDL_CLONES inline void adam_moments(float* __restrict m, float* __restrict v, const float* __restrict g, uint32_t n,
                                          const Hyper& h) {
  const float keep1 = 1 - h.beta1, keep2 = 1 - h.beta2;
  for (uint32_t i = 0; i < n; ++i) {
    m[i] += (g[i] - m[i]) * keep1;
    v[i] = h.beta2 * v[i] + keep2 * g[i] * g[i];
  }
}

inline void adam(ROW) {
  if (h.rule == Rule::kAdamW)
    for (uint32_t i = 0; i < n; ++i) w[i] -= w[i] * (c.rate * h.weight_decay);
  float *m = s, *v = s + n;
  adam_moments(m, v, g, n, h);
  if (h.rule == Rule::kAmsgrad) {
    float* largest = s + 2 * n;
    for (uint32_t i = 0; i < n; ++i) largest[i] = std::max(largest[i], v[i]);
    v = largest;
  }
  adam_step(w, m, v, n, h, c);
}

inline void ftrl(ROW) {
  const float l2 = h.l2 + h.beta / (2 * c.rate);
  float *accumulator = s, *linear = s + n;
  for (uint32_t i = 0; i < n; ++i) {
    const float grown = accumulator[i] + g[i] * g[i];
    const float before = std::pow(accumulator[i], -h.power), after = std::pow(grown, -h.power);
    linear[i] += g[i] - (after - before) / c.rate * w[i];
    const float quadratic = after / c.rate + 2 * l2;
    const float clipped = std::min(std::max(linear[i], -h.l1), h.l1);
    w[i] = (clipped - linear[i]) / quadratic;
    accumulator[i] = grown;
  }
}

ELASTICDL_CLONES inline void rmsprop(ROW) {
  float* mean = h.centered ? s + n : nullptr;
  float* velocity = h.momentum != 0 ? s + n * (1 + h.centered) : nullptr;
  const float rho = h.beta2, rest = 1 - h.beta2;
  for (uint32_t i = 0; i < n; ++i) {
    s[i] = rho * s[i] + rest * g[i] * g[i];
    float square = s[i];
    if (mean != nullptr) {
      mean[i] += (g[i] - mean[i]) * rest;
      square -= mean[i] * mean[i];
    }
    const float root = h.dialect == Dialect::kTorch ? std::sqrt(square) + h.epsilon : std::sqrt(square + h.epsilon);
    float step = g[i] / root;
    if (h.dialect == Dialect::kKeras) step *= c.rate;
    if (velocity != nullptr) step = velocity[i] = h.momentum * velocity[i] + step;
    w[i] -= h.dialect == Dialect::kKeras ? step : c.rate * step;
  }
}

using Update = void (*)(ROW);

inline Update update_function(Rule rule) {
  switch (rule) {
    case Rule::kSgd: return sgd;
    case Rule::kMomentum: return momentum;
    case Rule::kAdagrad: return adagrad;
    case Rule::kRowwiseAdagrad: return rowwise_adagrad;
    case Rule::kAdam: case Rule::kAmsgrad: case Rule::kAdamW: return adam;
    case Rule::kFtrl: return ftrl;
    case Rule::kRmsprop: return rmsprop;
  }
  return sgd;
}

#undef ROW

}  // namespace rules
}  // namespace elasticdl
