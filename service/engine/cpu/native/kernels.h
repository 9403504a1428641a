// What an instruction set computes: a table of functions, and the records that they take.
//
// Plain data alone.  Each instruction set is compiled with flags of its own, and of an inline function in a header that
// two of them include, the linker would keep one: perhaps the one with instructions that this CPU does not have.
//
// A value that is not a number makes all that follows from its row not a number, and no other row.  An infinite one
// does so where it is quantised; elsewhere it follows the arithmetic, and may end as a finite number.
//
// Axes: M rows, K inputs and N outputs of a product, D width of a model, H heads, d width of a head, A = H * d,
// S source columns, C candidates.  K, N, D and d are multiples of 16: `pack.py` pads them with zeros.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dragoman {

constexpr int kPanel = 16;  // outputs whose weights lie together, and the multiple of every width
constexpr int kBlock = 64;  // outputs that are computed for all rows before the next ones: their weights stay in cache
constexpr int kSummedDots = 8;  // dot products of four inputs, at most, whose sums have 16 bits in some sets
constexpr int kAnyWeightSum = 2 * kSummedDots * INT8_MAX;

enum class Activation : int32_t { kRelu = 0, kSwish = 1, kGelu = 2, kGeluTanh = 3 };

// IEEE binary16: what caches hold in an int8 model.
struct Half {
  uint16_t bits;
};

// out[n] = bias[n] + sum over k of in[k] * weight[k][n], the weight in floats, or in integers times scales[n].
struct Linear {
  int32_t num_inputs;      // K
  int32_t num_outputs;     // N
  const int8_t* integers;  // [N / 16][K / 4][16][4], within `Kernels::most_weight_sum`; null: floats
  const float* floats;     // [N / 16][K][16]; null: integers
  const float* scales;     // [N], with integers
  const int32_t* sums;     // [N]: of each output's integers
  const float* bias;       // [N]
};

// The inputs of a product, as floats or as integers: value = (integer - zero) * scale of the row.
struct Rows {
  const float* floats;      // [M, K]; null: integers
  const uint8_t* integers;  // [M, K]
  const float* scales;      // [M]
  int32_t zero;             // in the middle of the integers, or 0 where no value is negative
};

// (x - mean) / sqrt(variance + epsilon) * weight + bias; without a bias x / sqrt(mean square + epsilon) * weight.
struct Norm {
  const float* weight;  // [D]
  const float* bias;    // [D]; null: of root mean squares (Zhang & Sennrich 2019)
  float epsilon;
};

// Rows of an embedding, as floats or as integers times a scale each.
struct Table {
  const float* floats;     // [V, D]; null: integers
  const int8_t* integers;  // [V, D]
  const float* scales;     // [V]
};

// One query over its own past.  A column of the cache holds the keys of all heads, then their values.
struct ColumnAttention {
  const float* query;      // [A]
  const void* cache;       // [columns, 2 A], of the cache's type
  const int32_t* columns;  // [T]: which of them, oldest first
  int32_t num_columns;     // T, at least 1
  int32_t num_heads, head_width;
  float scale;        // of products of queries and keys
  const float* bias;  // [H, T], added to them; null: nothing
  float* weights;     // [H, T rounded up to 16], scratch
  float* out;         // [A]
};

// Some queries over the same columns.
struct SharedAttention {
  const float* queries;  // [M, query_stride]
  size_t query_stride;
  int32_t num_queries;  // M
  const void* keys;     // [A, S rounded up to 16], of the cache's type: columns lie side by side
  const void* values;   // [S, value_stride]
  size_t value_stride;
  int32_t num_columns;  // S, at least 1
  int32_t num_heads, head_width;
  float scale;
  const float* bias;  // [H, M + S - 1], of self-attention: number M - 1 - m + s is added to product m, s; null: nothing
  float* weights;     // [4, S rounded up to 16], scratch
  float* out;         // [M, out_stride]
  size_t out_stride;
  float* head_weights;  // [H, M, S]: where to put what each head attends to; null: nowhere
};

// A change of a logit: divide it by the factor if it is positive, else multiply it, then add the value.
struct Edit {
  int32_t token;
  float value, factor;
};

// The best tokens of one row, and the logarithm of the sum of all exponentials.
struct Ranking {
  float* logits;    // [C], descending
  int32_t* tokens;  // [C]
  int32_t first_edit, end_edit;
  float log_sum;
  float greatest;  // logit so far
  float sums[16];  // of exponentials, less the greatest, by lane
};

// The functions that read or write caches of one type.
struct CacheKernels {
  size_t element_size;
  void (*store)(const float* values, int count, void* out);
  // keys [S, stride] -> [A, S rounded up to 16], zeros after the last
  void (*transpose)(const float* keys, size_t stride, int num_columns, int width, void* out);
  void (*attend_columns)(const ColumnAttention&);
  void (*attend_shared)(const SharedAttention&);
};

struct Kernels {
  const char* name;
  int32_t levels;  // an activation is an integer from 0 to 2 * levels + 1, whose middle is levels + 1
  // The most that weights of one sign may sum to among those whose products are summed in 16 bits: of each output, and
  // of the inputs 4 * i + j and 4 * i + j + 1, where j is 0 or 2, for kSummedDots numbers i.
  int32_t most_weight_sum;

  // values [K] -> integers around the middle, or from 0 on if none is negative; returns the scale
  float (*quantize)(const float* values, int width, bool is_positive, uint8_t* out);
  void (*normalize)(const float* values, int width, const Norm&, float* out);
  // in place, and times factors [width] unless they are null
  void (*activate)(float* values, const float* factors, int width, Activation);
  // One step of an SSRU: inputs [2, width] are x and what forgets.  cell = x + sigmoid(forget) * (parent's cell - x),
  // which is 0 of no parent (null); adds relu(cell) to out.
  void (*recur)(const float* inputs, const float* parent, int width, float* cell, float* out);
  // row `token` of the table plus position [D], unless that is null
  void (*embed)(const Table&, int32_t token, const float* position, int width, float* out);
  // out [M, out_stride] = or += rows times weights plus bias
  void (*product)(const Linear&, const Rows&, int num_rows, float* out, size_t out_stride, bool is_added);
  // Ranks the tokens of each row; `bans` [N], or null, is added after the sum.  A row's edits are sorted by token.
  void (*rank)(const Linear&, const Rows&, int num_rows, const Edit* edits, const float* bans, int num_best, Ranking*);

  CacheKernels halves, floats;
};

extern const Kernels avx2_kernels, avxvnni_kernels, avx512vnni_kernels;

// The kernels of a set, or null if it is unknown or this machine cannot run it; an empty name means the best there is.
const Kernels* find_kernels(const char* name);

}  // namespace dragoman
