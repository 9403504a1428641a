// Products of rows with packed weights, in tiles whose sums stay in registers.  From the outside in:
//   product, or `rank` of projection.h   for each block of 64 outputs
//   next_block                           for as many rows as a tile takes
//   block                                for each tile of the block
//   tile                                 for each 32 inputs: starts, adds up and stores ROWS x VECTORS sums
//   add_inputs                           add_dots; where sums have 16 bits, add_words, which widens what add_dots sums
//   Integer, Float                       of `Isa`: what is loaded, multiplied and stored
//
// A row's sums are taken in one order, whichever rows stand beside it, so that its results depend on no other row.
#pragma once

#include "kernels.h"

namespace dragoman {
namespace {

constexpr int kMostTileRows = 14;
constexpr size_t kAhead = 1024;  // bytes of a panel between the weights that are read and those that are asked for

// How a tile multiplies integers: four inputs at a time.
template <class Isa>
struct Integer {
  using Input = uint8_t;
  using Weight = int8_t;
  using Set = Isa;
  using Sums = typename Isa::Integers;
  static constexpr int inputs_a_dot = 4, most_rows = Isa::integer_rows, most_dots = Isa::most_dots;

  static const Input* inputs(const Rows& rows) { return rows.integers; }
  static const Weight* weights(const Linear& linear) { return linear.integers; }
  static Sums broadcast(const Input* p) { return Isa::broadcast_four(p); }
  static Sums load(const Weight* p) { return Isa::load_bytes(p); }
  static Sums first_dot(Sums x, Sums weights) { return Isa::first_dot(x, weights); }
  static Sums dot(Sums sums, Sums x, Sums weights) { return Isa::dot(sums, x, weights); }
  static Sums start(const Linear& linear, const Rows& rows, int column) {
    return Isa::load_scaled(linear.sums + column, -rows.zero);
  }
  static typename Isa::Floats value(Sums sums, const Linear& linear, const Rows& rows, int row, int column) {
    const auto scaled = Isa::mul(Isa::to_floats(sums), Isa::broadcast(rows.scales[row]));
    return Isa::fma(scaled, Isa::load(linear.scales + column), Isa::load(linear.bias + column));
  }
};

// How it multiplies floats: one input at a time.
template <class Isa>
struct Float {
  using Input = float;
  using Weight = float;
  using Set = Isa;
  using Sums = typename Isa::Floats;
  static constexpr int inputs_a_dot = 1, most_rows = Isa::float_rows, most_dots = 0;

  static const Input* inputs(const Rows& rows) { return rows.floats; }
  static const Weight* weights(const Linear& linear) { return linear.floats; }
  static Sums broadcast(const Input* p) { return Isa::broadcast(*p); }
  static Sums load(const Weight* p) { return Isa::load(p); }
  static Sums dot(Sums sums, Sums x, Sums weights) { return Isa::fma(x, weights, sums); }
  static Sums start(const Linear& linear, const Rows&, int column) { return Isa::load(linear.bias + column); }
  static Sums value(Sums sums, const Linear&, const Rows&, int, int) { return sums; }
};

// What a tile reads next.
template <class Kind, int ROWS>
struct Place {
  const typename Kind::Input* inputs[(ROWS + 2) / 3];  // of every third row: registers are few
  const typename Kind::Weight* weights;
  size_t num_inputs;
  size_t panel;  // how far the weights of the next panel are
  size_t next;   // how far those are that are wanted soon
};

// Adds DOTS dot products of inputs and weights to the sums of a tile, or starts the sums with them.
template <class Kind, bool IS_FIRST, int DOTS, int ROWS, int VECTORS>
inline __attribute__((always_inline)) void add_dots(Place<Kind, ROWS>& place,
                                                    typename Kind::Sums (&sums)[ROWS][VECTORS]) {
  using Isa = typename Kind::Set;
  using Sums = typename Kind::Sums;
  constexpr int per_panel = kPanel / Isa::width, step = Kind::inputs_a_dot;
#pragma GCC unroll 8
  for (int dot = 0; dot < DOTS; dot++) {
    Sums weights[VECTORS];
#pragma GCC unroll 4
    for (int j = 0; j < VECTORS; j++) {
      const int within = (dot * kPanel + j % per_panel * Isa::width) * step;
      const auto* first = place.weights + j / per_panel * place.panel + within;
      weights[j] = Kind::load(first);
      if (j % per_panel == 0) __builtin_prefetch(first + place.next);
    }
#pragma GCC unroll 14
    for (int i = 0; i < ROWS; i++) {
      const Sums x = Kind::broadcast(place.inputs[i / 3] + i % 3 * place.num_inputs + dot * step);
#pragma GCC unroll 4
      for (int j = 0; j < VECTORS; j++) {
        if constexpr (IS_FIRST) {
          if (dot == 0) {
            sums[i][j] = Kind::first_dot(x, weights[j]);
            continue;
          }
        }
        sums[i][j] = Kind::dot(sums[i][j], x, weights[j]);
      }
    }
  }
  place.weights += DOTS * kPanel * step;
#pragma GCC unroll 4
  for (auto& inputs : place.inputs) inputs += DOTS * step;
}

// Adds DOTS dot products that are summed in 16 bits first.
template <class Kind, int DOTS, int ROWS, int VECTORS>
inline __attribute__((always_inline)) void add_words(Place<Kind, ROWS>& place,
                                                     typename Kind::Sums (&sums)[ROWS][VECTORS]) {
  typename Kind::Sums words[ROWS][VECTORS];
  add_dots<Kind, true, DOTS>(place, words);
#pragma GCC unroll 14
  for (int i = 0; i < ROWS; i++) {
#pragma GCC unroll 4
    for (int j = 0; j < VECTORS; j++) sums[i][j] = Kind::Set::add_words(sums[i][j], words[i][j]);
  }
}

// Adds the products of INPUTS inputs.
template <class Kind, int INPUTS, int ROWS, int VECTORS>
inline __attribute__((always_inline)) void add_inputs(Place<Kind, ROWS>& place,
                                                      typename Kind::Sums (&sums)[ROWS][VECTORS]) {
  constexpr int num_dots = INPUTS / Kind::inputs_a_dot;
  if constexpr (Kind::most_dots) {
    add_words<Kind, num_dots>(place, sums);
  } else {
    for (int dot = 0; dot < num_dots; dot++) add_dots<Kind, false, 1>(place, sums);
  }
}

// A tile of ROWS rows and VECTORS vectors of outputs from `column` on; out [ROWS, out_stride].
template <class Kind, int ROWS, int VECTORS>
inline void tile(const Linear& linear, const Rows& rows, int first_row, int column, float* out, size_t out_stride,
                 bool is_added) {
  using Isa = typename Kind::Set;
  typename Kind::Sums sums[ROWS][VECTORS];
#pragma GCC unroll 4
  for (int j = 0; j < VECTORS; j++) {
    const auto start = Kind::start(linear, rows, column + j * Isa::width);
#pragma GCC unroll 14
    for (int i = 0; i < ROWS; i++) sums[i][j] = start;
  }
  const size_t num_inputs = linear.num_inputs;
  Place<Kind, ROWS> place;
#pragma GCC unroll 4
  for (size_t i = 0; i < ROWS; i += 3) place.inputs[i / 3] = Kind::inputs(rows) + (first_row + i) * num_inputs;
  place.weights = Kind::weights(linear) + column * num_inputs;
  place.num_inputs = num_inputs, place.panel = kPanel * num_inputs, place.next = 0;
  // The first rows ask for weights ahead, near the end of a panel for those of the next block's; the others find the
  // block in a cache.
  constexpr size_t group = 4 * kSummedDots, ahead = kAhead / (sizeof(typename Kind::Weight) * kPanel);  // inputs
  const size_t near = first_row == 0 ? ahead * kPanel : 0;
  const size_t far = first_row == 0 ? near + kBlock * num_inputs - place.panel : 0;
  size_t rest = num_inputs;
  for (; rest >= group; rest -= group) {
    place.next = rest >= ahead + group ? near : far;
    add_inputs<Kind, group>(place, sums);
  }
  if (rest) add_inputs<Kind, kPanel>(place, sums);
#pragma GCC unroll 4
  for (int j = 0; j < VECTORS; j++) {
#pragma GCC unroll 14
    for (int i = 0; i < ROWS; i++) {
      float* target = out + i * out_stride + j * Isa::width;
      const auto value = Kind::value(sums[i][j], linear, rows, first_row + i, column + j * Isa::width);
      Isa::store(target, is_added ? Isa::add(Isa::load(target), value) : value);
    }
  }
}

// All outputs of a block from `column` on, at most `num_columns` of them, for `num_rows` rows, which are ROWS or more.
template <class Kind, int ROWS = 1>
void block(int num_rows, const Linear& linear, const Rows& rows, int first_row, int column, int num_columns, float* out,
           size_t out_stride, bool is_added) {
  if constexpr (ROWS < Kind::most_rows) {
    if (num_rows > ROWS) {
      return block<Kind, ROWS + 1>(num_rows, linear, rows, first_row, column, num_columns, out, out_stride, is_added);
    }
  }
  constexpr int width = Kind::Set::width, vectors = ROWS <= Kind::Set::wide_rows ? 4 : 2;
  int n = 0;
  for (; n + vectors * width <= num_columns; n += vectors * width) {
    tile<Kind, ROWS, vectors>(linear, rows, first_row, column + n, out + n, out_stride, is_added);
  }
  for (; n < num_columns; n += kPanel) {
    tile<Kind, ROWS, kPanel / width>(linear, rows, first_row, column + n, out + n, out_stride, is_added);
  }
}

// A block for the next of `num_rows` rows.  Returns how many it took: tiles are about as large, 13 rows are 7 and 6.
template <class Isa>
int next_block(int num_rows, const Linear& linear, const Rows& rows, int first_row, int column, int num_columns,
               float* out, size_t out_stride, bool is_added) {
  const int most = linear.integers ? Isa::integer_rows : Isa::float_rows;
  const int num_tiles = (num_rows + most - 1) / most, count = (num_rows + num_tiles - 1) / num_tiles;
  const auto run = linear.integers ? block<Integer<Isa>> : block<Float<Isa>>;
  run(count, linear, rows, first_row, column, num_columns, out, out_stride, is_added);
  return count;
}

template <class Isa>
void product(const Linear& linear, const Rows& rows, int num_rows, float* out, size_t out_stride, bool is_added) {
  for (int column = 0; column < linear.num_outputs; column += kBlock) {
    const int rest = linear.num_outputs - column, num_columns = rest < kBlock ? rest : kBlock;
    for (int row = 0; row < num_rows;) {
      float* target = out + row * out_stride + column;
      row += next_block<Isa>(num_rows - row, linear, rows, row, column, num_columns, target, out_stride, is_added);
    }
  }
}

}  // namespace
}  // namespace dragoman
