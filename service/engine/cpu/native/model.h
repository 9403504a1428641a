// A model as `pack.py` writes it: a header, a table of tensors, and the tensors, which are used where they lie.
#pragma once

#include "kernels.h"
#include "memory.h"

namespace dragoman {

constexpr char kMagic[8] = {'D', 'R', 'A', 'G', 'O', 'M', 'A', 'N'};
constexpr int32_t kFormat = 4;

// Sizes and kinds, in the order in which `pack.py` writes them.  Booleans are 0 or 1.
struct Header {
  char magic[8];
  int32_t format;
  int32_t width;          // D
  int32_t num_heads;      // H
  int32_t head_width;     // d, rounded up to 16
  float attention_scale;  // one over the square root of the width before that
  int32_t inner_width;    // of the feed-forward network, rounded up to 16
  int32_t num_source_tokens, num_target_tokens;
  int32_t num_logits;  // N of the projection: a multiple of 64
  int32_t num_encoder_layers, num_decoder_layers;
  int32_t num_positions;
  int32_t relative_distance;  // F, beyond which self-attention tells no farther; 0: positions are added
  int32_t is_recurrent;       // SSRUs (Kim et al. 2019) in place of the decoder's self-attention
  int32_t norms_first;        // pre-norm: x + f(norm(x)); otherwise norm(x + f(x))
  int32_t has_embedding_norm, has_final_norm, has_own_positions, shares_table;
  int32_t is_rms, is_gated;
  int32_t activation;
  int32_t keeps_floats;  // keys and values are floats and not halves
  int32_t has_bans;
  int32_t most_weight_sum;  // what the weights of products keep to, see `Kernels`
  float epsilon;
  int32_t num_tensors;
};

struct FeedForward {
  Norm norm;
  Linear inner, outer;  // of a gated one, `inner` has the gate's outputs first
};

struct EncoderLayer {
  Norm norm;
  Linear query_key_value, output;
  FeedForward feed_forward;
};

struct DecoderLayer {
  Norm own_norm, cross_norm;
  Linear query_key_value, own_output;  // of self-attention
  Linear input_forget;                 // of an SSRU in its place
  Linear cross_query, cross_output;
  FeedForward feed_forward;
};

struct Model {
  MappedFile packed;
  Header header;
  const Kernels* kernels;
  const CacheKernels* cache;  // of the caches' type
  Table source_table, target_table;
  const float *source_positions, *target_positions;  // [P, D]; null: none are added
  const float *source_bias, *target_bias;  // [H, 2 F + 1]: of a key that is F after its query, ..., F before it
  Norm source_embedding_norm, target_embedding_norm, encoder_norm, decoder_norm;
  Array<EncoderLayer> encoder;
  Array<DecoderLayer> decoder;
  Linear cross_key_value;  // of all decoder layers side by side
  Linear projection;
  const float* bans;  // [N], added after the softmax; null: nothing

  // Scratch of the one call that runs.
  Array<float> states, wide, mixed, hidden, inputs, scales, hidden_scales, weights, bias, logits;
  Array<uint8_t> integers, hidden_integers;
  Array<uint8_t> keys;
  Array<int32_t> tokens;
  Array<Ranking> rankings;

  int attention_width() const { return header.num_heads * header.head_width; }
  size_t column_bytes() const { return 2 * attention_width() * cache->element_size; }  // a key and a value of all heads
};

// Reads the packed model in a file: a wrong argument where its parts have other sizes than its header says.
Status read_model(int descriptor, Model& model);

}  // namespace dragoman
