// Every function of `Kernels` as one would write it on paper.
#include "plain.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include <algorithm>
#include <vector>

namespace dragoman {
namespace {

constexpr int kLevels = 127;

int padded(int number) { return (number + kPanel - 1) / kPanel * kPanel; }

float to_float(float value) { return value; }

float to_float(Half half) {
  const int exponent = half.bits >> 10 & 31, fraction = half.bits & 1023;
  const float magnitude = exponent == 31  ? (fraction ? NAN : INFINITY)
                          : exponent == 0 ? ldexpf(static_cast<float>(fraction), -24)
                                          : ldexpf(static_cast<float>(1024 + fraction), exponent - 25);
  return half.bits >> 15 ? -magnitude : magnitude;
}

void put(float value, float* out) { *out = value; }

void put(float value, Half* out) {
  const uint16_t sign = signbit(value) ? 0x8000 : 0;
  const float magnitude = fabsf(value);
  uint16_t bits = 0x7e00;  // not a number
  if (magnitude >= 65520.0f) {
    bits = 0x7c00;  // rounds to infinity
  } else if (magnitude < 6.103515625e-5f) {
    bits = static_cast<uint16_t>(nearbyintf(ldexpf(magnitude, 24)));
  } else if (magnitude == magnitude) {
    int exponent;
    const float fraction = frexpf(magnitude, &exponent);  // 0.5 <= fraction < 1
    bits = static_cast<uint16_t>((exponent + 13) * 1024 + static_cast<int>(nearbyintf(ldexpf(fraction, 11))));
  }
  out->bits = sign | bits;
}

float quantize(const float* values, int width, bool is_positive, uint8_t* out) {
  const float levels = is_positive ? 2 * kLevels + 1 : kLevels;
  const int zero = is_positive ? 0 : kLevels + 1;
  float largest = 0.0f;
  bool is_finite = true;
  for (int i = 0; i < width; i++) {
    is_finite = is_finite && isfinite(values[i]);
    largest = fmaxf(largest, fabsf(values[i]));
  }
  largest = fmaxf(largest, 1e-20f);
  for (int i = 0; i < width; i++) {
    const float level = is_finite ? nearbyintf(values[i] * (levels / largest)) : 0.0f;
    out[i] = static_cast<uint8_t>(static_cast<int>(level) + zero);
  }
  return is_finite ? largest / levels : NAN;
}

void normalize(const float* values, int width, const Norm& norm, float* out) {
  double mean = 0.0, variance = 0.0;
  for (int i = 0; norm.bias && i < width; i++) mean += values[i];
  mean /= width;
  for (int i = 0; i < width; i++) variance += (values[i] - mean) * (values[i] - mean);
  variance /= width;
  const double factor = 1.0 / sqrt(variance + norm.epsilon);
  for (int i = 0; i < width; i++) {
    const double scaled = (values[i] - mean) * factor * norm.weight[i];
    out[i] = static_cast<float>(scaled + (norm.bias ? norm.bias[i] : 0.0f));
  }
}

float activated(float x, Activation activation) {
  switch (activation) {
    case Activation::kRelu:
      return x < 0.0f ? 0.0f : x;
    case Activation::kSwish:
      return x / (1.0f + expf(-x));
    case Activation::kGelu:
      return 0.5f * x * (1.0f + erff(x * 0.70710678f));
    case Activation::kGeluTanh:
      return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
  }
  return NAN;
}

void activate(float* values, const float* factors, int width, Activation activation) {
  for (int i = 0; i < width; i++) values[i] = activated(values[i], activation) * (factors ? factors[i] : 1.0f);
}

void recur(const float* inputs, const float* parent, int width, float* cell, float* out) {
  for (int i = 0; i < width; i++) {
    const float x = inputs[i], past = parent ? parent[i] : 0.0f;
    cell[i] = x + (past - x) / (1.0f + expf(-inputs[width + i]));
    out[i] += activated(cell[i], Activation::kRelu);
  }
}

void embed(const Table& table, int32_t token, const float* position, int width, float* out) {
  for (int i = 0; i < width; i++) {
    const size_t place = static_cast<size_t>(token) * width + i;
    const float value = table.floats ? table.floats[place] : table.integers[place] * table.scales[token];
    out[i] = value + (position ? position[i] : 0.0f);
  }
}

float product_of(const Linear& linear, const Rows& rows, int row, int n) {
  const int num_inputs = linear.num_inputs;
  const size_t panel = static_cast<size_t>(n / kPanel) * kPanel * num_inputs;
  const size_t first = static_cast<size_t>(row) * num_inputs;
  if (linear.floats) {
    double sum = linear.bias[n];
    for (int k = 0; k < num_inputs; k++) {
      sum += static_cast<double>(rows.floats[first + k]) *
             linear.floats[panel + static_cast<size_t>(k) * kPanel + n % kPanel];
    }
    return static_cast<float>(sum);
  }
  int32_t sum = -rows.zero * linear.sums[n];
  for (int k = 0; k < num_inputs; k++) {
    const size_t place = static_cast<size_t>(k / 4) * 4 * kPanel + (n % kPanel) * 4 + k % 4;
    sum += rows.integers[first + k] * linear.integers[panel + place];
  }
  return static_cast<float>(sum) * rows.scales[row] * linear.scales[n] + linear.bias[n];
}

void product(const Linear& linear, const Rows& rows, int num_rows, float* out, size_t out_stride, bool is_added) {
  for (int row = 0; row < num_rows; row++) {
    for (int n = 0; n < linear.num_outputs; n++) {
      float& target = out[row * out_stride + n];
      target = product_of(linear, rows, row, n) + (is_added ? target : 0.0f);
    }
  }
}

void rank(const Linear& linear, const Rows& rows, int num_rows, const Edit* edits, const float* bans, int num_best,
          Ranking* rankings) {
  const int num_tokens = linear.num_outputs;
  std::vector<float> logits(num_tokens);
  std::vector<int32_t> order(num_tokens);
  for (int row = 0; row < num_rows; row++) {
    Ranking& ranking = rankings[row];
    for (int n = 0; n < num_tokens; n++) logits[n] = product_of(linear, rows, row, n), order[n] = n;
    for (int i = ranking.first_edit; i < ranking.end_edit; i++) {
      float& logit = logits[edits[i].token];
      logit = (logit > 0.0f ? logit / edits[i].factor : logit * edits[i].factor) + edits[i].value;
    }
    ranking.greatest = -FLT_MAX;
    for (const float logit : logits) ranking.greatest = fmaxf(ranking.greatest, logit);
    double sum = 0.0;
    for (const float logit : logits) sum += exp(static_cast<double>(logit) - ranking.greatest);
    ranking.log_sum = static_cast<float>(ranking.greatest + log(sum));
    for (int n = 0; bans && n < num_tokens; n++) logits[n] += bans[n];
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
    for (int i = 0; i < num_best; i++) {
      const bool is_there = i < num_tokens && logits[order[i]] > -INFINITY;
      ranking.logits[i] = is_there ? logits[order[i]] : -INFINITY;
      ranking.tokens[i] = is_there ? order[i] : 0;
    }
  }
}

// weights [n] -> their softmax
void softmax(float* weights, int count) {
  float greatest = -INFINITY;
  for (int i = 0; i < count; i++) greatest = fmaxf(greatest, weights[i]);
  double sum = 0.0;
  for (int i = 0; i < count; i++) sum += weights[i] = expf(weights[i] - greatest);
  for (int i = 0; i < count; i++) weights[i] = static_cast<float>(weights[i] / sum);
}

template <class T>
void attend_columns(const ColumnAttention& own) {
  const int width = own.num_heads * own.head_width;
  const T* cache = static_cast<const T*>(own.cache);
  for (int head = 0; head < own.num_heads; head++) {
    const int first = head * own.head_width;
    for (int t = 0; t < own.num_columns; t++) {
      const T* key = cache + static_cast<size_t>(own.columns[t]) * 2 * width;
      float sum = 0.0f;
      for (int i = first; i < first + own.head_width; i++) sum += own.query[i] * to_float(key[i]);
      own.weights[t] = sum * own.scale + (own.bias ? own.bias[head * own.num_columns + t] : 0.0f);
    }
    softmax(own.weights, own.num_columns);
    for (int i = first; i < first + own.head_width; i++) {
      float sum = 0.0f;
      for (int t = 0; t < own.num_columns; t++) {
        sum += own.weights[t] * to_float(cache[static_cast<size_t>(own.columns[t]) * 2 * width + width + i]);
      }
      own.out[i] = sum;
    }
  }
}

template <class T>
void attend_shared(const SharedAttention& shared) {
  const int num_columns = shared.num_columns, stride = padded(num_columns);
  const T *keys = static_cast<const T*>(shared.keys), *values = static_cast<const T*>(shared.values);
  for (int head = 0; head < shared.num_heads; head++) {
    const int first = head * shared.head_width;
    for (int row = 0; row < shared.num_queries; row++) {
      const float* query = shared.queries + row * shared.query_stride;
      const size_t place = static_cast<size_t>(head) * shared.num_queries + row;
      for (int s = 0; s < num_columns; s++) {
        float sum = 0.0f;
        for (int i = first; i < first + shared.head_width; i++) {
          sum += query[i] * to_float(keys[static_cast<size_t>(i) * stride + s]);
        }
        const size_t distance = shared.num_queries - 1 - row + s, num_distances = shared.num_queries + num_columns - 1;
        const float bias = shared.bias ? shared.bias[head * num_distances + distance] : 0.0f;
        shared.weights[s] = sum * shared.scale + bias;
      }
      softmax(shared.weights, num_columns);
      if (shared.head_weights)
        memcpy(shared.head_weights + place * num_columns, shared.weights, num_columns * sizeof(float));
      for (int i = first; i < first + shared.head_width; i++) {
        float sum = 0.0f;
        for (int s = 0; s < num_columns; s++) sum += shared.weights[s] * to_float(values[s * shared.value_stride + i]);
        shared.out[row * shared.out_stride + i] = sum;
      }
    }
  }
}

template <class T>
void store(const float* values, int count, void* out) {
  for (int i = 0; i < count; i++) put(values[i], static_cast<T*>(out) + i);
}

template <class T>
void transpose(const float* keys, size_t stride, int num_columns, int width, void* out) {
  const int num_padded = padded(num_columns);
  for (int i = 0; i < width; i++) {
    for (int s = 0; s < num_padded; s++) {
      put(s < num_columns ? keys[s * stride + i] : 0.0f,
          static_cast<T*>(out) + static_cast<size_t>(i) * num_padded + s);
    }
  }
}

template <class T>
constexpr CacheKernels cache_kernels() {
  return {sizeof(T), store<T>, transpose<T>, attend_columns<T>, attend_shared<T>};
}

}  // namespace

const Kernels plain_kernels = {
    "plain",
    kLevels,
    kAnyWeightSum,
    quantize,
    normalize,
    activate,
    recur,
    embed,
    product,
    rank,
    cache_kernels<Half>(),
    cache_kernels<float>(),
};

}  // namespace dragoman
