// The hypotheses of sentences that are searched together, and how the candidates of a step extend and end them: what
// `Candidates.extend` and `BeamSearch` do in Python, to the bit.
#pragma once

#include "search_state.h"

namespace dragoman {

constexpr int64_t kLoopTokens = 48, kLoopStride = 16;  // of beams.py: when a sentence is looked at for repetition

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

// Hypotheses that have ended, in the order in which they did.
struct Endings {
  int32_t count, num_rooms;
  int64_t *sentences, *lengths, *parents, *tokens;
  float* scores;  // normalised
};

enum Mark : uint8_t { kGoesOn = 0, kMayEnd = 1, kNonFinite = 2, kHasEnded = 3 };

// Extends the hypotheses of B sentences by the best candidates, and marks [B] those that have something to decide.
// With one hypothesis, `Step::best` becomes its sums.  With `endings`, which must have room for B x K more, it decides
// for all but those that are to be looked at for repetition.
void extend_beams(const Step& step, int32_t num_sentences, const Beams& beams, int64_t end, int64_t* parents,
                  uint8_t* marks, Endings* endings);

// Writes the tokens [length - 1] of a hypothesis of sentence b whose last token, the one with number `length`, extends
// this place.  False: there is no such hypothesis.
bool trace(const Beams& beams, int32_t b, int64_t length, int64_t place, int64_t* tokens);

// Takes steps, at most so many, without edits from the newest tokens of `beams` on, up to the first after which a
// sentence is marked.  The hypotheses are extended after each; `advance` has to follow the last.
Status run_ahead(SearchState& state, const Step& step, const Beams& beams, int64_t end, int32_t most, int64_t* parents,
                 uint8_t* marks, Endings& endings, int32_t& num_steps);

}  // namespace dragoman
