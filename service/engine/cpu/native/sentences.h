// What the decoder remembers: of a source its keys and values, of a sentence the columns of its hypotheses.
//
// Each step adds one column of keys and values for every hypothesis that goes on, and each hypothesis has a list of the
// columns that are its past, oldest first.  A beam that changes its order moves lists and no keys; columns that no list
// has any more are dropped when the others move to a larger cache.  Where a column lies changes no result.
#pragma once

#include "model.h"

namespace dragoman {

// A sentence that the encoder has read; it is shared by those who search for its translation.
struct Source {
  const Model* model = nullptr;  // that has read it
  int32_t num_holders = 1;
  int32_t num_columns = 0;  // S
  Array<uint8_t> memory;    // for each decoder layer keys [A, S rounded up to 16] and values [S, A]

  size_t num_padded() const { return round_up(num_columns, kPanel); }
  size_t row_bytes() const { return model->column_bytes() / 2; }
  size_t layer_bytes() const { return (num_padded() + num_columns) * row_bytes(); }
  uint8_t* keys(int layer) { return memory.data() + layer * layer_bytes(); }
  uint8_t* values(int layer) { return keys(layer) + num_padded() * row_bytes(); }
};

inline void release(Source* source) {
  if (--source->num_holders == 0) delete source;
}

// The projection to some tokens.
struct Shortlist {
  int32_t num_tokens = 0;
  Linear projection = {};
  Array<int32_t> tokens, sums;               // tokens ascend, and the last one is there again up to a multiple of 64
  Array<float> weights, scales, bias, bans;  // weights may be integers
};

struct Sentence {
  Source* source = nullptr;
  int32_t beam_size = 0;
  int32_t num_steps = 0;                 // that it has taken
  int32_t num_columns = 0;               // in use, of self-attention
  int32_t capacity = 0;                  // room for so many
  Array<uint8_t> cache;                  // [layers, capacity, 2 A]
  Array<int32_t> pasts, next_pasts;      // [K, P]: the columns of each hypothesis, oldest first
  Array<int32_t> lengths, next_lengths;  // [K]
  Shortlist shortlist;                   // beside the tokens that all sentences of its state may use

  ~Sentence() {
    if (source) release(source);
  }
  const Model& model() const { return *source->model; }
  int32_t* past(int hypothesis) {
    return pasts.data() + static_cast<size_t>(hypothesis) * model().header.num_positions;
  }
  uint8_t* layer(int layer) { return cache.data() + static_cast<size_t>(layer) * capacity * model().column_bytes(); }

  // Gives a hypothesis a column more.  In a recurrent model, only the newest one before it is read any more.
  void extend(int hypothesis, int32_t column) {
    int32_t& length = lengths[hypothesis];
    if (model().header.is_recurrent && length > 1) past(hypothesis)[0] = past(hypothesis)[1], length = 1;
    past(hypothesis)[length++] = column;
  }
};

// Begins a sentence with hypotheses that have no past; false where there is no memory.
[[nodiscard]] bool begin(Sentence& sentence, Source* source, int beam_size);

// Packs the projection to these tokens, which ascend and are below the model's number of them.
[[nodiscard]] bool choose_tokens(const Model& model, Shortlist& list, const int32_t* tokens, int num_tokens);

// Makes room for so many columns more.
[[nodiscard]] bool make_room(Sentence& sentence, int num_new);

// Gives every hypothesis the past of its parent.
void reorder(Sentence& sentence, const int64_t* parents);

}  // namespace dragoman
