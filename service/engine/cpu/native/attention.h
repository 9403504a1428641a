// Attention of the decoder over a hypothesis' own past, and of both sides over the columns of a source.
#pragma once

#include <math.h>
#include <string.h>

#include "rows.h"

namespace dragoman {
namespace {

inline int padded(int number) { return (number + kPanel - 1) / kPanel * kPanel; }

// weights [n rounded up to 16], the first n of them set -> their softmax
template <class Isa>
inline void softmax(float* weights, int count) {
  using Floats = typename Isa::Floats;
  for (int t = count; t < padded(count); t++) weights[t] = -INFINITY;
  Floats greatest = Isa::load(weights);
  for (int t = Isa::width; t < count; t += Isa::width) greatest = Isa::max(greatest, Isa::load(weights + t));
  const Floats most = Isa::broadcast(Isa::greatest(greatest));
  Floats sum = Isa::broadcast(0.0f);
  for (int t = 0; t < count; t += Isa::width) {
    const Floats x = exponential<Isa>(Isa::sub(Isa::load(weights + t), most));
    Isa::store(weights + t, x);
    sum = Isa::add(sum, x);
  }
  const Floats share = Isa::broadcast(1.0f / Isa::sum(sum));
  for (int t = 0; t < count; t += Isa::width) Isa::store(weights + t, Isa::mul(Isa::load(weights + t), share));
}

// Products of one head's query with the keys of eight columns, from t on; those after the last repeat it.
template <class Isa, class T>
inline void score_eight(const ColumnAttention& own, const T* keys, size_t stride, int head, int t, float* weights) {
  using Floats = typename Isa::Floats;
  const int last = own.num_columns - 1;
  const float* query = own.query + head * own.head_width;
  const T* key[8];
#pragma GCC unroll 8
  for (int j = 0; j < 8; j++) key[j] = keys + own.columns[t + j < last ? t + j : last] * stride + head * own.head_width;
  Floats sums[8] = {};
  for (int i = 0; i < own.head_width; i += Isa::width) {
    const Floats q = Isa::load(query + i);
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) sums[j] = Isa::fma(q, Isa::load(key[j] + i), sums[j]);
  }
  Isa::store_sums(sums, weights + t);
}

// The weighted sum of values for VECTORS vectors from `first` on, of which each PER_HEAD belong to one head.
template <class Isa, class T, int PER_HEAD, int VECTORS>
inline void mix_vectors(const ColumnAttention& own, const T* values, size_t stride, int first) {
  using Floats = typename Isa::Floats;
  constexpr int num_parts = VECTORS / PER_HEAD;
  const float* weights[num_parts];
#pragma GCC unroll 8
  for (int p = 0; p < num_parts; p++) {
    weights[p] = own.weights + (first + p * PER_HEAD * Isa::width) / own.head_width * padded(own.num_columns);
  }
  Floats sums[VECTORS] = {};
  for (int t = 0; t < own.num_columns; t++) {
    const T* value = values + own.columns[t] * stride + first;
#pragma GCC unroll 8
    for (int p = 0; p < num_parts; p++) {
      const Floats weight = Isa::broadcast(weights[p][t]);
#pragma GCC unroll 8
      for (int i = p * PER_HEAD; i < (p + 1) * PER_HEAD; i++) {
        sums[i] = Isa::fma(weight, Isa::load(value + i * Isa::width), sums[i]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < VECTORS; i++) Isa::store(own.out + first + i * Isa::width, sums[i]);
}

// The weighted sum of values for all heads, each of which has a multiple of PER_HEAD vectors.
template <class Isa, class T, int PER_HEAD>
void mix_heads(const ColumnAttention& own, const T* values, size_t stride) {
  const int width = own.num_heads * own.head_width;
  int i = 0;
  for (; i + 8 * Isa::width <= width; i += 8 * Isa::width) mix_vectors<Isa, T, PER_HEAD, 8>(own, values, stride, i);
  for (; i < width; i += PER_HEAD * Isa::width) mix_vectors<Isa, T, PER_HEAD, PER_HEAD>(own, values, stride, i);
}

template <class Isa, class T>
void attend_columns(const ColumnAttention& own) {
  const int width = own.num_heads * own.head_width, num_padded = padded(own.num_columns);
  const size_t stride = 2 * static_cast<size_t>(width);
  const T* keys = static_cast<const T*>(own.cache);
  for (int t = 0; t < own.num_columns; t += 8) {
    for (int head = 0; head < own.num_heads; head++) {
      score_eight<Isa, T>(own, keys, stride, head, t, own.weights + head * num_padded);
    }
  }
  for (int head = 0; head < own.num_heads; head++) {
    float* weights = own.weights + head * num_padded;
    for (int t = 0; t < own.num_columns; t++) {
      weights[t] = weights[t] * own.scale + (own.bias ? own.bias[head * own.num_columns + t] : 0.0f);
    }
    softmax<Isa>(weights, own.num_columns);
  }
  const int vectors = own.head_width / Isa::width;
  const auto mix = vectors % 8 == 0   ? mix_heads<Isa, T, 8>
                   : vectors % 4 == 0 ? mix_heads<Isa, T, 4>
                   : vectors % 2 == 0 ? mix_heads<Isa, T, 2>
                                      : mix_heads<Isa, T, 1>;
  mix(own, keys + width, stride);
}

// Scaled products of ROWS queries with VECTORS vectors of keys of one head: weights [ROWS, stride].
template <class Isa, class T, int ROWS, int VECTORS>
inline void score_rows(const SharedAttention& shared, const float* queries, const T* keys, size_t stride,
                       float* weights) {
  using Floats = typename Isa::Floats;
  Floats sums[ROWS][VECTORS] = {};
  for (int i = 0; i < shared.head_width; i++) {
    Floats key[VECTORS];
#pragma GCC unroll 2
    for (int j = 0; j < VECTORS; j++) key[j] = Isa::load(keys + i * stride + j * Isa::width);
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; r++) {
      const Floats q = Isa::broadcast(queries[r * shared.query_stride + i]);
#pragma GCC unroll 2
      for (int j = 0; j < VECTORS; j++) sums[r][j] = Isa::fma(q, key[j], sums[r][j]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < ROWS; r++) {
#pragma GCC unroll 2
    for (int j = 0; j < VECTORS; j++) {
      Isa::store(weights + r * stride + j * Isa::width, Isa::mul(sums[r][j], Isa::broadcast(shared.scale)));
    }
  }
}

// The weighted sums of values for ROWS queries and VECTORS vectors of one head.
template <class Isa, class T, int ROWS, int VECTORS>
inline void mix_rows(const SharedAttention& shared, const T* values, size_t stride, float* out) {
  using Floats = typename Isa::Floats;
  Floats sums[ROWS][VECTORS] = {};
  for (int s = 0; s < shared.num_columns; s++) {
    Floats value[VECTORS];
#pragma GCC unroll 2
    for (int j = 0; j < VECTORS; j++) value[j] = Isa::load(values + s * shared.value_stride + j * Isa::width);
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; r++) {
      const Floats weight = Isa::broadcast(shared.weights[r * stride + s]);
#pragma GCC unroll 2
      for (int j = 0; j < VECTORS; j++) sums[r][j] = Isa::fma(weight, value[j], sums[r][j]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < ROWS; r++) {
#pragma GCC unroll 2
    for (int j = 0; j < VECTORS; j++) Isa::store(out + r * shared.out_stride + j * Isa::width, sums[r][j]);
  }
}

// ROWS queries, from `first` on: each key and value that is loaded serves all of them.
template <class Isa, class T, int ROWS>
void attend_rows(const SharedAttention& shared, int first) {
  const size_t stride = padded(shared.num_columns);
  const int num_columns = shared.num_columns;
  for (int head = 0; head < shared.num_heads; head++) {
    const int begin = head * shared.head_width;
    const float* queries = shared.queries + first * shared.query_stride + begin;
    const T* keys = static_cast<const T*>(shared.keys) + begin * stride;
    size_t s = 0;
    for (; s + 2 * Isa::width <= stride; s += 2 * Isa::width) {
      score_rows<Isa, T, ROWS, 2>(shared, queries, keys + s, stride, shared.weights + s);
    }
    for (; s < stride; s += Isa::width)
      score_rows<Isa, T, ROWS, 1>(shared, queries, keys + s, stride, shared.weights + s);
    for (int r = 0; r < ROWS; r++) {
      float* weights = shared.weights + r * stride;
      const size_t row = static_cast<size_t>(head) * shared.num_queries + first + r;
      const size_t bias =
          static_cast<size_t>(head) * (shared.num_queries + num_columns - 1) + shared.num_queries - 1 - first - r;
      for (int t = 0; shared.bias && t < num_columns; t++) weights[t] += shared.bias[bias + t];
      softmax<Isa>(weights, num_columns);
      if (shared.head_weights) memcpy(shared.head_weights + row * num_columns, weights, num_columns * sizeof(float));
    }
    const T* values = static_cast<const T*>(shared.values) + begin;
    float* out = shared.out + first * shared.out_stride + begin;
    int i = 0;
    for (; i + 2 * Isa::width <= shared.head_width; i += 2 * Isa::width) {
      mix_rows<Isa, T, ROWS, 2>(shared, values + i, stride, out + i);
    }
    for (; i < shared.head_width; i += Isa::width) mix_rows<Isa, T, ROWS, 1>(shared, values + i, stride, out + i);
  }
}

// The queries from `first` on, ROWS at a time, then the rest.
template <class Isa, class T, int ROWS>
void attend_from(const SharedAttention& shared, int first) {
  for (; first + ROWS <= shared.num_queries; first += ROWS) attend_rows<Isa, T, ROWS>(shared, first);
  if constexpr (ROWS > 1) attend_from<Isa, T, ROWS - 1>(shared, first);
}

template <class Isa, class T>
void attend_shared(const SharedAttention& shared) {
  attend_from<Isa, T, 4>(shared, 0);
}

template <class Isa, class T>
void store(const float* values, int count, void* out) {
  for (int i = 0; i < count; i += Isa::width) Isa::store(static_cast<T*>(out) + i, Isa::load(values + i));
}

template <class Isa, class T>
void transpose(const float* keys, size_t stride, int num_columns, int width, void* out) {
  const int num_padded = padded(num_columns);
  alignas(64) float panel[16][16];  // [keys, columns]
  for (int s = 0; s < num_padded; s += 16) {
    for (int i = 0; i < width; i += 16) {
      for (int column = 0; column < 16; column++) {
        const bool is_there = s + column < num_columns;
        for (int key = 0; key < 16; key++) panel[key][column] = is_there ? keys[(s + column) * stride + i + key] : 0.0f;
      }
      for (int key = 0; key < 16; key++) {
        store<Isa, T>(panel[key], 16, static_cast<T*>(out) + static_cast<size_t>(i + key) * num_padded + s);
      }
    }
  }
}

}  // namespace
}  // namespace dragoman
