// What happens to a row between two products: norms, activations, quantising, embedding.
#pragma once

#include <math.h>
#include <string.h>

#include "kernels.h"

namespace dragoman {
namespace {

// e^x within 2e-7 of its value for x from -87 to 88, and no less or more beyond: 2^n * 2^r, the latter a polynomial.
template <class Isa>
inline typename Isa::Floats exponential(typename Isa::Floats x) {
  using Floats = typename Isa::Floats;
  x = Isa::min(Isa::broadcast(88.0f), Isa::max(Isa::broadcast(-87.0f), x));
  const Floats power = Isa::mul(x, Isa::broadcast(1.44269504f));
  const Floats whole = Isa::round(power), rest = Isa::sub(power, whole);
  Floats sum = Isa::broadcast(1.3333558e-3f);
  sum = Isa::fma(sum, rest, Isa::broadcast(9.6181291e-3f));
  sum = Isa::fma(sum, rest, Isa::broadcast(5.5504109e-2f));
  sum = Isa::fma(sum, rest, Isa::broadcast(2.4022651e-1f));
  sum = Isa::fma(sum, rest, Isa::broadcast(6.9314718e-1f));
  sum = Isa::fma(sum, rest, Isa::broadcast(1.0f));
  return Isa::times_power(sum, whole);
}

template <class Isa>
float quantize(const float* values, int width, bool is_positive, uint8_t* out) {
  typename Isa::Integers most = Isa::magnitudes(Isa::load(values));
  for (int i = Isa::width; i < width; i += Isa::width) most = Isa::max(most, Isa::magnitudes(Isa::load(values + i)));
  const int32_t bits = Isa::greatest(most);
  float largest;
  memcpy(&largest, &bits, sizeof largest);
  const bool is_finite = largest < INFINITY;
  if (largest < 1e-20f) largest = 1e-20f;
  constexpr int middle = Isa::levels + 1;
  const float levels = is_positive ? 2 * Isa::levels + 1 : Isa::levels;
  const auto factor = Isa::broadcast(is_finite ? levels / largest : 0.0f),
             shift = Isa::broadcast(is_positive ? -middle : 0);
  for (int i = 0; i < width; i += 16) Isa::store_levels(values + i, factor, shift, middle, out + i);
  return is_finite ? largest / levels : NAN;
}

template <class Isa>
void normalize(const float* values, int width, const Norm& norm, float* out) {
  using Floats = typename Isa::Floats;
  constexpr int w = Isa::width;
  const Floats zero = Isa::broadcast(0.0f);
  Floats mean = zero;
  if (norm.bias) {
    for (int i = 0; i < width; i += w) mean = Isa::add(mean, Isa::load(values + i));
    mean = Isa::broadcast(Isa::sum(mean) / width);
  }
  Floats squares[2] = {zero, zero};
  for (int i = 0; i < width; i += w) {
    const Floats x = Isa::sub(Isa::load(values + i), mean);
    squares[i / w % 2] = Isa::fma(x, x, squares[i / w % 2]);
  }
  const float variance = Isa::sum(Isa::add(squares[0], squares[1])) / width;
  const Floats factor = Isa::broadcast(1.0f / sqrtf(variance + norm.epsilon));
  for (int i = 0; i < width; i += w) {
    const Floats x = Isa::mul(Isa::sub(Isa::load(values + i), mean), factor);
    const Floats bias = norm.bias ? Isa::load(norm.bias + i) : zero;
    Isa::store(out + i, Isa::fma(x, Isa::load(norm.weight + i), bias));
  }
}

// x * sigmoid(z)
template <class Isa>
inline typename Isa::Floats gate(typename Isa::Floats x, typename Isa::Floats z) {
  const typename Isa::Floats one = Isa::broadcast(1.0f);
  return Isa::div(x, Isa::add(one, exponential<Isa>(Isa::sub(Isa::broadcast(0.0f), z))));
}

// x * Phi(x), with erf after Abramowitz & Stegun 7.1.26, within 1.5e-7.
template <class Isa>
inline typename Isa::Floats gelu(typename Isa::Floats x) {
  using Floats = typename Isa::Floats;
  const Floats zero = Isa::broadcast(0.0f), one = Isa::broadcast(1.0f);
  const Floats magnitude = Isa::max(Isa::sub(zero, x), x), z = Isa::mul(magnitude, Isa::broadcast(0.70710678f));
  const Floats t = Isa::div(one, Isa::fma(z, Isa::broadcast(0.3275911f), one));
  Floats sum = Isa::broadcast(1.061405429f);
  sum = Isa::fma(sum, t, Isa::broadcast(-1.453152027f));
  sum = Isa::fma(sum, t, Isa::broadcast(1.421413741f));
  sum = Isa::fma(sum, t, Isa::broadcast(-0.284496736f));
  sum = Isa::mul(Isa::fma(sum, t, Isa::broadcast(0.254829592f)), t);
  const Floats erf = Isa::sub(one, Isa::mul(sum, exponential<Isa>(Isa::sub(zero, Isa::mul(z, z)))));
  return Isa::mul(Isa::broadcast(0.5f), Isa::fma(magnitude, erf, x));
}

// x * sigmoid(2 u), which is 0.5 x (1 + tanh(u)).
template <class Isa>
inline typename Isa::Floats gelu_tanh(typename Isa::Floats x) {
  using Floats = typename Isa::Floats;
  const Floats cube = Isa::mul(Isa::mul(x, x), x);
  return gate<Isa>(x, Isa::mul(Isa::broadcast(2 * 0.79788456f), Isa::fma(cube, Isa::broadcast(0.044715f), x)));
}

template <class Isa, class Function>
inline void each(float* values, const float* factors, int width, Function function) {
  for (int i = 0; i < width; i += Isa::width) {
    const typename Isa::Floats y = function(Isa::load(values + i));
    Isa::store(values + i, factors ? Isa::mul(y, Isa::load(factors + i)) : y);
  }
}

template <class Isa>
void activate(float* values, const float* factors, int width, Activation activation) {
  using Floats = typename Isa::Floats;
  switch (activation) {
    case Activation::kRelu:
      return each<Isa>(values, factors, width, [](Floats x) { return Isa::max(Isa::broadcast(0.0f), x); });
    case Activation::kSwish:
      return each<Isa>(values, factors, width, [](Floats x) { return gate<Isa>(x, x); });
    case Activation::kGelu:
      return each<Isa>(values, factors, width, gelu<Isa>);
    case Activation::kGeluTanh:
      return each<Isa>(values, factors, width, gelu_tanh<Isa>);
  }
}

template <class Isa>
void recur(const float* inputs, const float* parent, int width, float* cell, float* out) {
  using Floats = typename Isa::Floats;
  const Floats zero = Isa::broadcast(0.0f);
  for (int i = 0; i < width; i += Isa::width) {
    const Floats x = Isa::load(inputs + i), past = parent ? Isa::load(parent + i) : zero;
    const Floats next = Isa::add(x, gate<Isa>(Isa::sub(past, x), Isa::load(inputs + width + i)));
    Isa::store(cell + i, next);
    Isa::store(out + i, Isa::add(Isa::load(out + i), Isa::max(zero, next)));
  }
}

template <class Isa>
void embed(const Table& table, int32_t token, const float* position, int width, float* out) {
  using Floats = typename Isa::Floats;
  const size_t first = static_cast<size_t>(token) * width;
  for (int i = 0; i < width; i += Isa::width) {
    const Floats base = position ? Isa::load(position + i) : Isa::broadcast(0.0f);
    const Floats value =
        table.floats ? Isa::add(Isa::load(table.floats + first + i), base)
                     : Isa::fma(Isa::load(table.integers + first + i), Isa::broadcast(table.scales[token]), base);
    Isa::store(out + i, value);
  }
}

}  // namespace
}  // namespace dragoman
