// The projection to tokens with what the search wants of it: the best tokens of each row, and the logarithm of the sum
// of all exponentials.  Logits exist for a block of tokens and a tile of rows at a time, and stay in the first cache.
#pragma once

#include <float.h>

#include "products.h"
#include "rows.h"

namespace dragoman {
namespace {

constexpr float kLowest = -FLT_MAX;  // finite, so that logits that are all banned leave a sum that is a number

// Changes the logits of a block [kBlock] of one row whose first token is `column`.
inline void edit_block(Ranking& ranking, const Edit* edits, int column, float* logits) {
  for (; ranking.first_edit < ranking.end_edit && edits[ranking.first_edit].token < column + kBlock;
       ranking.first_edit++) {
    const Edit& edit = edits[ranking.first_edit];
    float& logit = logits[edit.token - column];
    logit = (logit > 0.0f ? logit / edit.factor : logit * edit.factor) + edit.value;
  }
}

// Puts a logit after those that are no smaller; it is greater than the last.
inline void insert(Ranking& ranking, int num_best, float logit, int32_t token) {
  int place = num_best - 1;
  for (; place > 0 && ranking.logits[place - 1] < logit; place--) {
    ranking.logits[place] = ranking.logits[place - 1];
    ranking.tokens[place] = ranking.tokens[place - 1];
  }
  ranking.logits[place] = logit;
  ranking.tokens[place] = token;
}

// Adds a block [kBlock] of logits to what is known of a row.
template <class Isa>
inline void rank_block(Ranking& ranking, int num_best, int column, float* logits, const float* bans) {
  using Floats = typename Isa::Floats;
  constexpr int w = Isa::width;
  Floats most = Isa::load(logits);
  for (int i = w; i < kBlock; i += w) most = Isa::max(most, Isa::load(logits + i));
  Floats sums = Isa::load(ranking.sums);
  if (Isa::above(most, Isa::broadcast(ranking.greatest))) {
    const float greatest = Isa::greatest(most);
    sums = Isa::mul(sums, exponential<Isa>(Isa::broadcast(ranking.greatest - greatest)));
    ranking.greatest = greatest;
  }
  const Floats greatest = Isa::broadcast(ranking.greatest);
  for (int i = 0; i < kBlock; i += w) {
    sums = Isa::add(sums, exponential<Isa>(Isa::sub(Isa::load(logits + i), greatest)));
  }
  Isa::store(ranking.sums, sums);
  if (bans) {
    for (int i = 0; i < kBlock; i += w)
      Isa::store(logits + i, Isa::add(Isa::load(logits + i), Isa::load(bans + column + i)));
  }
  const float* last = ranking.logits + num_best - 1;
  if (!Isa::above(most, Isa::broadcast(*last))) return;
  for (int i = 0; i < kBlock; i += w) {
    uint32_t better = Isa::above(Isa::load(logits + i), Isa::broadcast(*last));
    for (; better; better &= better - 1) {
      const int place = i + __builtin_ctz(better);
      if (logits[place] > *last) insert(ranking, num_best, logits[place], column + place);
    }
  }
}

// Asks for weights of the block after `column`: of each panel two lines after those that the tile has asked for.
// They come while the logits of a row are ranked.
inline void prefetch_block(const Linear& linear, int column, int row) {
  if (!linear.integers) return;
  const size_t panel = static_cast<size_t>(linear.num_inputs) * kPanel;
  const int8_t* first = linear.integers + (column + kBlock) / kPanel * panel + kAhead + row * 128;
  for (size_t p = 0; p < kBlock / kPanel; p++) {
    __builtin_prefetch(first + p * panel, 0, 2), __builtin_prefetch(first + p * panel + 64, 0, 2);
  }
}

template <class Isa>
void rank(const Linear& linear, const Rows& rows, int num_rows, const Edit* edits, const float* bans, int num_best,
          Ranking* rankings) {
  alignas(64) float logits[kMostTileRows * kBlock];
  for (int row = 0; row < num_rows; row++) {
    Ranking& ranking = rankings[row];
    for (int i = 0; i < num_best; i++) ranking.logits[i] = -INFINITY, ranking.tokens[i] = 0;
    for (float& sum : ranking.sums) sum = 0.0f;
    ranking.greatest = kLowest;
  }
  for (int column = 0; column < linear.num_outputs; column += kBlock) {
    for (int row = 0, count; row < num_rows; row += count) {
      count = next_block<Isa>(num_rows - row, linear, rows, row, column, kBlock, logits, kBlock, false);
      for (int i = 0; i < count; i++) {
        if (row == 0) prefetch_block(linear, column, i);
        edit_block(rankings[row + i], edits, column, logits + i * kBlock);
        rank_block<Isa>(rankings[row + i], num_best, column, logits + i * kBlock, bans);
      }
    }
  }
  for (int row = 0; row < num_rows; row++) {
    const float sum = Isa::sum(Isa::load(rankings[row].sums));
    rankings[row].log_sum = rankings[row].greatest + logf(sum);
  }
}

}  // namespace
}  // namespace dragoman
