// The sentences that decode together, numbered from 0 without holes, and what a step asks for each of them.
#pragma once

#include "layers.h"

namespace dragoman {

enum Status : int32_t { kOk = 0, kNoMemory = 1, kWrongArgument = 2 };

constexpr int32_t kMostHypotheses = 1 << 10;  // of a sentence
constexpr int32_t kMostCandidates = 1 << 16;

struct SearchState {
  Model* model;
  int32_t beam_size;            // K
  int32_t num_sentences = 0;    // B
  bool awaits_advance = false;  // after a step
  bool is_broken = false;       // a step failed on its way: the state can only be closed
  Shortlist common;             // what all sentences may use beside their own; without any, they may use all tokens
  Array<Sentence*> sentences;
  // Of a step, by row of the decoder: hypotheses whose score is minus infinity have none.
  Array<DecoderRow> rows;
  Array<int32_t> hypotheses;
  Array<Edit> edits;

  SearchState(Model* model, int32_t beam_size) : model(model), beam_size(beam_size) {}
  ~SearchState() {
    for (int32_t i = 0; i < num_sentences; i++) delete sentences[i];
  }
};

// What `Runner.decode_step` is given, and where its results go.
struct Step {
  const int64_t* tokens;  // [B, K]
  const float* scores;    // [B, K]
  int32_t num_edits;      // E, sorted by row and token
  const int64_t *edit_rows, *edit_tokens;
  const float *edit_values, *edit_factors;
  int32_t num_candidates;          // C
  float* best;                     // [B, C], descending
  int64_t *best_tokens, *parents;  // [B, C]
  float* check;                    // [B]: not a number where the log-probabilities are not
};

Status take_step(SearchState& state, const Step& step);

// The arrays of `Beams` in beams.py, with room for more sentences (R) and columns (T) than there are.
struct Beams {
  int32_t beam_size, num_rooms, num_columns;  // K, R, T
  float* scores;                              // [R, K]
  int64_t* newest;                            // [R, K]
  int64_t *tokens, *parents;                  // [R, T, K]
  int64_t *num_steps, *max_steps;             // [R]
  int64_t *still_wanted, *waits_for_best;     // [R]
  const float* penalties;                     // [R]
};

// Hypotheses that end in a step, in the order of their sentences: room for B x K.
struct Endings {
  int32_t count;
  int64_t *sentences, *parents, *tokens;
  float* scores;  // normalised
};

constexpr int64_t kLoopTokens = 48, kLoopStride = 16;  // of beams.py: when a sentence is looked at for repetition

enum Mark : uint8_t { kGoesOn = 0, kMayEnd = 1, kNonFinite = 2, kHasEnded = 3 };

// What `Candidates.extend` of beams.py does with the candidates of a step: extends the hypotheses of B sentences by the
// best, and marks [B] those that have something to decide.  With one hypothesis, `Step::best` becomes its sums.
// With `endings`, it decides for all but those that are to be looked at for repetition, as `BeamSearch._end` does.
void extend_beams(const Step& step, int32_t num_sentences, const Beams& beams, int64_t end, int64_t* parents,
                  uint8_t* marks, Endings* endings);

// Has hypothesis k of sentence b go on from the past of hypothesis parents[b, k].
void advance(SearchState& state, const int64_t* parents);

// Takes steps from the newest tokens of `beams` on, without edits, and extends its hypotheses behind each but the last:
// the first one that marks a sentence, or the one behind `most` others.  Says how many were extended.
Status run_ahead(SearchState& state, const Step& step, const Beams& beams, int64_t end, int32_t most, int64_t* parents,
                 uint8_t* marks, int32_t& num_extended);

}  // namespace dragoman
