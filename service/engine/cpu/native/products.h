// Products of rows with packed weights, in tiles whose sums stay in registers.
//
// A row's sums are taken in one order, whichever rows stand beside it, so that its results depend on no other row.
#pragma once

#include "kernels.h"

namespace dragoman {
namespace {

constexpr int kMostTileRows = 12;

// A tile of ROWS rows and VECTORS vectors of outputs from `column` on; out [ROWS, out_stride].
template <class Isa, int ROWS, int VECTORS>
inline void integer_tile(const Linear& linear, const Rows& rows, int first_row, int column, float* out,
                         size_t out_stride, bool is_added, bool brings_next) {
  using Integers = typename Isa::Integers;
  using Floats = typename Isa::Floats;
  constexpr int per_panel = kPanel / Isa::width;
  const size_t num_inputs = linear.num_inputs, panel = kPanel * num_inputs;
  const int8_t* weights = linear.integers + column * num_inputs;
  const size_t next = brings_next ? kBlock * num_inputs : 0;  // where the weights of the next block lie
  Integers sums[ROWS][VECTORS];
#pragma GCC unroll 4
  for (int j = 0; j < VECTORS; j++) {
    const Integers start = Isa::load_scaled(linear.sums + column + j * Isa::width, -rows.zero);
#pragma GCC unroll 12
    for (int i = 0; i < ROWS; i++) sums[i][j] = start;
  }
  constexpr int groups = (ROWS + 2) / 3;  // of three rows that share a pointer: there are not enough registers for more
  const uint8_t* inputs[groups];
#pragma GCC unroll 4
  for (int g = 0; g < groups; g++) inputs[g] = rows.integers + (first_row + 3 * g) * num_inputs;
  for (size_t k = 0; k < num_inputs; k += 4 * Isa::fours) {
    Integers w[VECTORS][Isa::fours];
#pragma GCC unroll 4
    for (int j = 0; j < VECTORS; j++) {
      const int8_t* first = weights + (j / per_panel) * panel + (j % per_panel) * 4 * Isa::width;
#pragma GCC unroll 2
      for (int f = 0; f < Isa::fours; f++) {
        w[j][f] = Isa::load_bytes(first + f * 4 * kPanel);
        if (j % per_panel == 0) __builtin_prefetch(first + f * 4 * kPanel + next, 0, 2);
      }
    }
#pragma GCC unroll 12
    for (int i = 0; i < ROWS; i++) {
      Integers x[Isa::fours];
#pragma GCC unroll 2
      for (int f = 0; f < Isa::fours; f++) x[f] = Isa::spread_four(inputs[i / 3] + (i % 3) * num_inputs + 4 * f);
#pragma GCC unroll 4
      for (int j = 0; j < VECTORS; j++) sums[i][j] = Isa::dot(sums[i][j], x, w[j]);
    }
    weights += 4 * kPanel * Isa::fours;
#pragma GCC unroll 4
    for (int g = 0; g < groups; g++) inputs[g] += 4 * Isa::fours;
  }
#pragma GCC unroll 4
  for (int j = 0; j < VECTORS; j++) {
    const Floats scales = Isa::load(linear.scales + column + j * Isa::width);
    const Floats bias = Isa::load(linear.bias + column + j * Isa::width);
#pragma GCC unroll 12
    for (int i = 0; i < ROWS; i++) {
      float* target = out + i * out_stride + j * Isa::width;
      const Floats scaled = Isa::mul(Isa::to_floats(sums[i][j]), Isa::spread(rows.scales[first_row + i]));
      const Floats value = Isa::fma(scaled, scales, bias);
      Isa::store(target, is_added ? Isa::add(Isa::load(target), value) : value);
    }
  }
}

// The same with floats.
template <class Isa, int ROWS, int VECTORS>
inline void float_tile(const Linear& linear, const Rows& rows, int first_row, int column, float* out, size_t out_stride,
                       bool is_added, bool brings_next) {
  using Floats = typename Isa::Floats;
  constexpr int per_panel = kPanel / Isa::width;
  const size_t num_inputs = linear.num_inputs, panel = kPanel * num_inputs;
  const float* weights = linear.floats + column * num_inputs;
  const size_t next = brings_next ? kBlock * num_inputs : 0;
  Floats sums[ROWS][VECTORS];
#pragma GCC unroll 4
  for (int j = 0; j < VECTORS; j++) {
    const Floats bias = Isa::load(linear.bias + column + j * Isa::width);
#pragma GCC unroll 12
    for (int i = 0; i < ROWS; i++) sums[i][j] = bias;
  }
  constexpr int groups = (ROWS + 2) / 3;
  const float* inputs[groups];
#pragma GCC unroll 4
  for (int g = 0; g < groups; g++) inputs[g] = rows.floats + (first_row + 3 * g) * num_inputs;
  for (size_t k = 0; k < num_inputs; k++) {
    Floats w[VECTORS];
#pragma GCC unroll 4
    for (int j = 0; j < VECTORS; j++) {
      w[j] = Isa::load(weights + (j / per_panel) * panel + (j % per_panel) * Isa::width);
      if (j % per_panel == 0) __builtin_prefetch(weights + (j / per_panel) * panel + next, 0, 2);
    }
#pragma GCC unroll 12
    for (int i = 0; i < ROWS; i++) {
      const Floats x = Isa::spread(inputs[i / 3][(i % 3) * num_inputs]);
#pragma GCC unroll 4
      for (int j = 0; j < VECTORS; j++) sums[i][j] = Isa::fma(x, w[j], sums[i][j]);
    }
    weights += kPanel;
#pragma GCC unroll 4
    for (int g = 0; g < groups; g++) inputs[g]++;
  }
#pragma GCC unroll 4
  for (int j = 0; j < VECTORS; j++) {
#pragma GCC unroll 12
    for (int i = 0; i < ROWS; i++) {
      float* target = out + i * out_stride + j * Isa::width;
      Isa::store(target, is_added ? Isa::add(Isa::load(target), sums[i][j]) : sums[i][j]);
    }
  }
}

// All outputs of a block from `column` on, at most `num_columns` of them, for ROWS rows.
template <class Isa, bool IS_INTEGER, int ROWS>
void block_rows(const Linear& linear, const Rows& rows, int first_row, int column, int num_columns, float* out,
                size_t out_stride, bool is_added) {
  constexpr int vectors = ROWS <= Isa::wide_rows ? 4 : 2;
  const bool brings_next = first_row == 0;
  int n = 0;
  for (; n + vectors * Isa::width <= num_columns; n += vectors * Isa::width) {
    if constexpr (IS_INTEGER) {
      integer_tile<Isa, ROWS, vectors>(linear, rows, first_row, column + n, out + n, out_stride, is_added, brings_next);
    } else {
      float_tile<Isa, ROWS, vectors>(linear, rows, first_row, column + n, out + n, out_stride, is_added, brings_next);
    }
  }
  constexpr int rest = kPanel / Isa::width;
  for (; n < num_columns; n += kPanel) {
    if constexpr (IS_INTEGER) {
      integer_tile<Isa, ROWS, rest>(linear, rows, first_row, column + n, out + n, out_stride, is_added, brings_next);
    } else {
      float_tile<Isa, ROWS, rest>(linear, rows, first_row, column + n, out + n, out_stride, is_added, brings_next);
    }
  }
}

template <class Isa, bool IS_INTEGER>
void block(int num_rows, const Linear& linear, const Rows& rows, int first_row, int column, int num_columns, float* out,
           size_t out_stride, bool is_added) {
  constexpr int most = IS_INTEGER ? Isa::integer_rows : Isa::float_rows;
  const auto run = [&](auto function) {
    function(linear, rows, first_row, column, num_columns, out, out_stride, is_added);
  };
  if (num_rows == 1) return run(block_rows<Isa, IS_INTEGER, 1>);
  if (num_rows == 2) return run(block_rows<Isa, IS_INTEGER, 2>);
  if (num_rows == 3) return run(block_rows<Isa, IS_INTEGER, 3>);
  if (num_rows == 4) return run(block_rows<Isa, IS_INTEGER, 4>);
  if constexpr (most > 4) {
    if (num_rows == 5) return run(block_rows<Isa, IS_INTEGER, 5>);
    if (num_rows == 6) return run(block_rows<Isa, IS_INTEGER, 6>);
  }
  if constexpr (most > 6) {
    if (num_rows == 7) return run(block_rows<Isa, IS_INTEGER, 7>);
    if (num_rows == 8) return run(block_rows<Isa, IS_INTEGER, 8>);
    if (num_rows == 9) return run(block_rows<Isa, IS_INTEGER, 9>);
    if (num_rows == 10) return run(block_rows<Isa, IS_INTEGER, 10>);
    if (num_rows == 11) return run(block_rows<Isa, IS_INTEGER, 11>);
    if (num_rows == 12) return run(block_rows<Isa, IS_INTEGER, 12>);
  }
}

// How many rows the next tile takes, so that all of them are about as large: 13 are 7 and 6.
template <class Isa>
int next_tile(const Linear& linear, int num_rows) {
  const int most = linear.integers ? Isa::integer_rows : Isa::float_rows;
  const int num_tiles = (num_rows + most - 1) / most;
  return (num_rows + num_tiles - 1) / num_tiles;
}

template <class Isa>
void tile_block(int num_rows, const Linear& linear, const Rows& rows, int first_row, int column, int num_columns,
                float* out, size_t out_stride, bool is_added) {
  if (linear.integers) {
    block<Isa, true>(num_rows, linear, rows, first_row, column, num_columns, out, out_stride, is_added);
  } else {
    block<Isa, false>(num_rows, linear, rows, first_row, column, num_columns, out, out_stride, is_added);
  }
}

template <class Isa>
void product(const Linear& linear, const Rows& rows, int num_rows, float* out, size_t out_stride, bool is_added) {
  for (int column = 0; column < linear.num_outputs; column += kBlock) {
    const int rest = linear.num_outputs - column, num_columns = rest < kBlock ? rest : kBlock;
    for (int row = 0; row < num_rows;) {
      const int tile = next_tile<Isa>(linear, num_rows - row);
      tile_block<Isa>(tile, linear, rows, row, column, num_columns, out + row * out_stride + column, out_stride,
                      is_added);
      row += tile;
    }
  }
}

}  // namespace
}  // namespace dragoman
