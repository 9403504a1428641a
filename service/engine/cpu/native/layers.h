// The Transformer's encoder and decoder (Vaswani et al. 2017), as the graphs of `export/` draw them.
#pragma once

#include "sentences.h"

namespace dragoman {

// One token of one hypothesis on its way through the decoder.  Rows of one sentence stand side by side.
struct DecoderRow {
  Sentence* sentence;
  int32_t token, position;
  const int32_t* columns;  // of the sentence's cache: its past and last its own, which its key and value go to
  int32_t num_columns;
};

// Reads sentences, whose ids stand one after the other, into sources of these lengths; false where there is no memory.
// `head_weights`, or null, gets what each head attends to, of one sentence alone: [layers, H, S, S].
[[nodiscard]] bool encode(Model& model, const int32_t* ids, Source* const* sources, int num_sources,
                          float* head_weights);

// Runs rows through the decoder and sets `states` to what the projection reads; false where there is no memory.
// `head_weights`, or null, gets what each head attends to in the source, of rows of one sentence alone: [layers, H, M,
// S].
[[nodiscard]] bool decode(Model& model, const DecoderRow* rows, int num_rows, Rows& states, float* head_weights);

// The rows from `first` on, each `width` wide.
Rows rows_from(const Rows& rows, int first, int width);

// The part of a product with `count` outputs from `first` on, both multiples of 16.
Linear slice(const Linear& linear, int first, int count);

}  // namespace dragoman
