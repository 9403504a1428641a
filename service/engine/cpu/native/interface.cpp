// The functions that `library.py` calls.  Every length and every id that comes in is checked here, or in `take_step`;
// that an address is one of an array so large is for the caller to see to.
//
// Each returns 0, 1 where there is too little memory, or 2 for arguments that are wrong.  Calls that use one model take
// turns: its scratch belongs to the call that runs.
#include <algorithm>
#include <functional>
#include <new>

#include "beams.h"
#include "slots.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

using namespace dragoman;

namespace {

constexpr int32_t kMostSources = 1 << 20;  // in a call

// Whether starts [count + 1] cut something into parts of 1 to `longest`.
bool are_starts(const int64_t* starts, int32_t count, int32_t longest) {
  if (starts[0] != 0) return false;
  for (int32_t i = 0; i < count; i++) {
    if (starts[i + 1] <= starts[i] || starts[i + 1] - starts[i] > longest) return false;
  }
  return true;
}

// Whether these are tokens of the model that ascend.
bool are_tokens(const Model& model, const int32_t* tokens, int64_t count) {
  return count <= model.header.num_target_tokens && are_within(tokens, count, model.header.num_target_tokens) &&
         std::adjacent_find(tokens, tokens + count, std::greater_equal<>()) == tokens + count;
}

// Whether the sizes are possible, and each of so many sentences lies in one of the first slots.
bool are_slots(const Slots& slots, int32_t num_slots, int32_t num_sentences) {
  if (slots.beam_size < 1 || slots.beam_size > kMostHypotheses || (slots.mask_bytes != 16 && slots.mask_bytes != 32))
    return false;
  if (slots.num_words < 1 || slots.num_words > kMostWords || num_slots < 0 || num_slots > slots.num_slots) return false;
  return num_sentences >= 0 && num_sentences <= num_slots && are_within(slots.numbers, num_sentences, num_slots);
}

// Whether a step is one over slots like these.
bool is_step_of(const Slots& slots, int32_t num_sentences, const SlotStep& step) {
  return are_slots(slots, step.num_slots, num_sentences) && step.num_words == slots.num_words &&
         step.num_candidates >= 1 && step.num_candidates <= kMostCandidates;
}

// Whether there is room for one step more of so many sentences.
bool have_room(const Beams& beams, const Endings* endings, const Step& step, int32_t num_sentences) {
  if (beams.beam_size < 1 || beams.beam_size > step.num_candidates) return false;
  if (num_sentences < 1 || num_sentences > beams.num_rooms) return false;
  if (endings && endings->num_rooms < int64_t{num_sentences} * beams.beam_size) return false;
  return are_within(beams.num_steps, num_sentences, int64_t{beams.num_columns} - 1);
}

}  // namespace

// The name of the instruction set of this name, or of the best for an empty one, if this machine can run it; else
// empty.
EXPORTED const char* dg_instruction_set(const char* name) {
  const Kernels* kernels = find_kernels(name);
  return kernels ? kernels->name : "";
}

// `Kernels::most_weight_sum` of an instruction set, or 0 if this machine cannot run it.
EXPORTED int32_t dg_most_weight_sum(const char* name) {
  const Kernels* kernels = find_kernels(name);
  return kernels ? kernels->most_weight_sum : 0;
}

// Opens the packed model in a file, which may be closed afterwards and must not change.
EXPORTED int32_t dg_open(int32_t descriptor, const char* instruction_set, Model** out) {
  const Kernels* kernels = find_kernels(instruction_set);
  if (!kernels) return kWrongArgument;
  Model* model = new (std::nothrow) Model();
  if (!model) return kNoMemory;
  Status status = read_model(descriptor, *model);
  if (!status && model->header.most_weight_sum > kernels->most_weight_sum) status = kWrongArgument;
  if (status) {
    delete model;
    return status;
  }
  model->kernels = kernels;
  model->cache = model->header.keeps_floats ? &kernels->floats : &kernels->halves;
  *out = model;
  return kOk;
}

EXPORTED void dg_close(Model* model) { delete model; }

// Encodes sentences: sentence b has the ids from starts[b] to starts[b + 1].  Each source is to be forgotten later.
// `head_weights`, or null, gets what each head attends to, of one sentence alone: [layers, H, S, S].
EXPORTED int32_t dg_encode(Model* model, int32_t num_sources, const int32_t* ids, const int64_t* starts, Source** out,
                           float* head_weights) {
  if (num_sources < 1 || num_sources > kMostSources) return kWrongArgument;
  if (!are_starts(starts, num_sources, model->header.num_positions) || (head_weights && num_sources > 1))
    return kWrongArgument;
  if (starts[num_sources] > INT32_MAX || !are_within(ids, starts[num_sources], model->header.num_source_tokens)) {
    return kWrongArgument;
  }
  int32_t num_made = 0;
  for (; num_made < num_sources; num_made++) {
    out[num_made] = new (std::nothrow) Source();
    if (!out[num_made]) break;
    out[num_made]->model = model;
    out[num_made]->num_columns = static_cast<int32_t>(starts[num_made + 1] - starts[num_made]);
  }
  if (num_made == num_sources && encode(*model, ids, out, num_sources, head_weights)) return kOk;
  for (int32_t i = 0; i < num_made; i++) release(out[i]);
  return kNoMemory;
}

EXPORTED void dg_forget(Source* source) { release(source); }

// Makes a state whose sentences may use all tokens, or, with `num_tokens`, only these and their own; they ascend.
EXPORTED int32_t dg_new_state(Model* model, int32_t beam_size, int32_t num_tokens, const int32_t* tokens,
                              SearchState** out) {
  if (beam_size < 1 || beam_size > kMostHypotheses || num_tokens < 0 || !are_tokens(*model, tokens, num_tokens))
    return kWrongArgument;
  *out = new (std::nothrow) SearchState(model, beam_size);
  if (!*out) return kNoMemory;
  if (!num_tokens || choose_tokens(*model, (*out)->common, tokens, num_tokens)) return kOk;
  delete *out;
  return kNoMemory;
}

EXPORTED void dg_close_state(SearchState* state) { delete state; }

// Adds sentences.  Sentence b may use the tokens from token_starts[b] to token_starts[b + 1], too, which ascend and are
// none of the state's; without those, there are none.  After an error no sentence is added.
EXPORTED int32_t dg_append(SearchState* state, int32_t num_sources, Source* const* sources, const int32_t* tokens,
                           const int64_t* token_starts) {
  if (state->awaits_advance || num_sources < 1 || num_sources > kMostSources || token_starts[0] != 0)
    return kWrongArgument;
  for (int32_t b = 0; b < num_sources; b++) {
    const int64_t first = token_starts[b], count = token_starts[b + 1] - first;
    if (sources[b]->model != state->model || count < 0 || (count && !state->common.num_tokens)) return kWrongArgument;
    if (!are_tokens(*state->model, tokens + first, count)) return kWrongArgument;
  }
  const int32_t before = state->num_sentences;
  bool has_memory = state->sentences.reserve(static_cast<size_t>(before) + num_sources, before);
  for (int32_t b = 0; b < num_sources && has_memory; b++) {
    Sentence* sentence = new (std::nothrow) Sentence();
    state->sentences[state->num_sentences++] = sentence;
    has_memory = sentence && begin(*sentence, sources[b], state->beam_size);
    const int64_t first = token_starts[b], count = token_starts[b + 1] - first;
    if (has_memory && count) {
      has_memory = choose_tokens(*state->model, sentence->shortlist, tokens + first, static_cast<int>(count));
    }
  }
  if (has_memory) return kOk;
  while (state->num_sentences > before) delete state->sentences[--state->num_sentences];
  return kNoMemory;
}

// Forgets a sentence; the last one takes its number.
EXPORTED int32_t dg_remove(SearchState* state, int32_t index) {
  if (index < 0 || index >= state->num_sentences) return kWrongArgument;
  delete state->sentences[index];
  state->sentences[index] = state->sentences[--state->num_sentences];
  return kOk;
}

// Runs the decoder for one token of every hypothesis; `dg_advance` has to follow.
EXPORTED int32_t dg_step(SearchState* state, int32_t num_sentences, const Step* step) {
  if (num_sentences < 1 || num_sentences != state->num_sentences || step->num_edits < 0) return kWrongArgument;
  return take_step(*state, *step);
}

// Extends the hypotheses of a beam search by the candidates of a step, which has run.  See `extend_beams`; `endings`
// may be null.
EXPORTED int32_t dg_extend(const Step* step, int32_t num_sentences, const Beams* beams, int64_t end, int64_t* parents,
                           uint8_t* marks, Endings* endings) {
  if (!have_room(*beams, endings, *step, num_sentences)) return kWrongArgument;
  if (endings) endings->count = 0;
  extend_beams(*step, num_sentences, *beams, end, parents, marks, endings);
  return kOk;
}

// Writes the tokens of a hypothesis but its last one; see `trace`.
EXPORTED int32_t dg_trace(const Beams* beams, int32_t index, int64_t length, int64_t place, int64_t* tokens) {
  if (index < 0 || index >= beams->num_rooms || length < 1 || length > beams->num_columns) return kWrongArgument;
  return trace(*beams, index, length, place, tokens) ? kOk : kWrongArgument;
}

// Has hypothesis k of sentence b go on from the past of hypothesis parents[b, k].
EXPORTED int32_t dg_advance(SearchState* state, int32_t num_sentences, const int64_t* parents) {
  if (!state->awaits_advance || num_sentences != state->num_sentences) return kWrongArgument;
  if (!are_within(parents, int64_t{num_sentences} * state->beam_size, state->beam_size)) return kWrongArgument;
  advance(*state, parents);
  return kOk;
}

// Takes steps, at most so many, and extends the hypotheses of a beam search after each; see `run_ahead`.  `dg_advance`
// has to follow.
EXPORTED int32_t dg_run_ahead(SearchState* state, int32_t num_sentences, const Step* step, const Beams* beams,
                              int64_t end, int32_t most, int64_t* parents, uint8_t* marks, Endings* endings,
                              int32_t* num_steps) {
  if (num_sentences != state->num_sentences || beams->beam_size != state->beam_size || most < 1) return kWrongArgument;
  if (!have_room(*beams, endings, *step, num_sentences)) return kWrongArgument;
  endings->count = 0;
  return run_ahead(*state, *step, *beams, end, most, parents, marks, *endings, *num_steps);
}

// Reads a translation in one pass: inputs [T] of the decoder and the token that follows each of them, whose natural
// log-probabilities go to log_probs [T].  `head_weights` gets what each head attends to: [layers, H, T, S].
EXPORTED int32_t dg_score(Model* model, Source* source, int32_t num_tokens, const int32_t* inputs,
                          const int32_t* following, float* log_probs, float* head_weights) {
  if (source->model != model || num_tokens < 1 || num_tokens > model->header.num_positions) return kWrongArgument;
  if (!are_within(inputs, num_tokens, model->header.num_target_tokens)) return kWrongArgument;
  if (!are_within(following, num_tokens, model->header.num_target_tokens)) return kWrongArgument;
  return score(*model, *source, num_tokens, inputs, following, log_probs, head_weights);
}

// Counts the columns that are used in the first slots; see `count_columns`.
EXPORTED int32_t dg_count_columns(const Slots* slots, int32_t num_slots, int32_t* most, int32_t* num_words) {
  if (!are_slots(*slots, num_slots, 0)) return kWrongArgument;
  count_columns(*slots, num_slots, *most, *num_words);
  return kOk;
}

// Gives a step on a GPU what it must know of its slots, and tokens and scores of `given`.
EXPORTED int32_t dg_write_step(const Slots* slots, int32_t num_sentences, const SlotStep* step, const Step* given) {
  if (!is_step_of(*slots, num_sentences, *step)) return kWrongArgument;
  return write_step(*slots, num_sentences, *step, *given) ? kOk : kWrongArgument;
}

// Takes the candidates of the sentences from what such a step has found.
EXPORTED int32_t dg_read_step(const Slots* slots, int32_t num_sentences, const SlotStep* step, int64_t num_logits,
                              const Step* found) {
  if (!is_step_of(*slots, num_sentences, *step) || num_logits < 1) return kWrongArgument;
  if (found->num_candidates != step->num_candidates) return kWrongArgument;
  read_step(*slots, num_sentences, *step, num_logits, *found);
  return kOk;
}

// Has hypothesis k of sentence b go on from the columns of hypothesis parents[b, k] after such a step.
EXPORTED int32_t dg_advance_slots(const Slots* slots, int32_t num_sentences, const int64_t* parents) {
  if (!are_slots(*slots, slots->num_slots, num_sentences)) return kWrongArgument;
  if (!are_within(parents, int64_t{num_sentences} * slots->beam_size, slots->beam_size)) return kWrongArgument;
  advance_slots(*slots, num_sentences, parents);
  return kOk;
}
