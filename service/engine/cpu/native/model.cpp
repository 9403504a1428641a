#include "model.h"

#include <string.h>

namespace dragoman {
namespace {

constexpr int32_t kMostNumbers = 1 << 24;  // in any size of a header: products of two of them fit a size_t

// Hands out the tensors of a packed model in their order, and notes whether all of them were as large as they must be.
class Tensors {
 public:
  Tensors(const uint8_t* packed, size_t num_bytes, size_t table, int32_t count)
      : packed_(packed), num_bytes_(num_bytes), table_(table), count_(count) {}

  bool are_good() const { return are_good_ && next_ == count_; }

  // The next tensor, of `size` elements; null if it is empty and may be.
  template <class T>
  const T* take(size_t size, bool is_optional = false) {
    if (next_ == count_) return fail<T>();
    uint64_t entry[2];  // offset and length in bytes
    memcpy(entry, packed_ + table_ + next_++ * sizeof entry, sizeof entry);
    if (is_optional && entry[1] == 0) return nullptr;
    const bool is_inside = entry[0] <= num_bytes_ && entry[1] <= num_bytes_ - entry[0];
    if (!is_inside || entry[0] % kAlignment || entry[1] != size * sizeof(T)) return fail<T>();
    return reinterpret_cast<const T*>(packed_ + entry[0]);
  }

  Linear linear(size_t num_inputs, size_t num_outputs) {
    Linear linear = {};
    linear.num_inputs = static_cast<int32_t>(num_inputs), linear.num_outputs = static_cast<int32_t>(num_outputs);
    linear.integers = take<int8_t>(num_inputs * num_outputs, true);
    linear.floats = take<float>(num_inputs * num_outputs, linear.integers != nullptr);
    linear.scales = take<float>(num_outputs, !linear.integers);
    linear.sums = take<int32_t>(num_outputs, !linear.integers);
    linear.bias = take<float>(num_outputs);
    return linear;
  }

  Norm norm(const Header& header) {
    Norm norm = {};
    norm.weight = take<float>(header.width);
    norm.bias = take<float>(header.width, header.is_rms);
    norm.epsilon = header.epsilon;
    return norm;
  }

  Table table(size_t num_tokens, size_t width) {
    Table table = {};
    table.integers = take<int8_t>(num_tokens * width, true);
    table.floats = take<float>(num_tokens * width, table.integers != nullptr);
    table.scales = take<float>(num_tokens, !table.integers);
    return table;
  }

  FeedForward feed_forward(const Header& header) {
    FeedForward layer = {};
    layer.norm = norm(header);
    layer.inner = linear(header.width, (header.is_gated ? 2 : 1) * static_cast<size_t>(header.inner_width));
    layer.outer = linear(header.inner_width, header.width);
    return layer;
  }

 private:
  template <class T>
  const T* fail() {
    are_good_ = false;
    return nullptr;
  }

  const uint8_t* packed_;
  size_t num_bytes_, table_;
  int32_t count_, next_ = 0;
  bool are_good_ = true;
};

bool is_possible(const Header& header) {
  const int32_t sizes[] = {header.width,         header.num_heads,          header.head_width,
                           header.inner_width,   header.num_source_tokens,  header.num_target_tokens,
                           header.num_logits,    header.num_encoder_layers, header.num_decoder_layers,
                           header.num_positions, header.num_tensors};
  for (const int32_t size : sizes) {
    if (size < 1 || size > kMostNumbers) return false;
  }
  const int64_t attention_width = static_cast<int64_t>(header.num_heads) * header.head_width;
  return memcmp(header.magic, kMagic, sizeof kMagic) == 0 && header.format == kFormat && header.width % kPanel == 0 &&
         header.head_width % kPanel == 0 && header.inner_width % kPanel == 0 && header.num_logits % kBlock == 0 &&
         header.num_target_tokens <= header.num_logits && attention_width <= kMostNumbers / 4 &&
         2 * attention_width * header.num_decoder_layers <= kMostNumbers && header.inner_width <= kMostNumbers / 2 &&
         header.relative_distance >= 0 && header.relative_distance <= kMostNumbers / 4 &&
         (!header.is_recurrent || attention_width >= header.width) && header.activation >= 0 &&
         header.activation <= static_cast<int32_t>(Activation::kGeluTanh);
}

}  // namespace

Status read_model(int descriptor, Model& model) {
  if (const Status status = model.packed.map(descriptor)) return status;
  const uint8_t* packed = model.packed.data();
  const size_t num_bytes = model.packed.size();
  Header& header = model.header;
  if (num_bytes < sizeof header) return kWrongArgument;
  memcpy(&header, packed, sizeof header);
  if (!is_possible(header)) return kWrongArgument;
  const size_t table = round_up(sizeof header, kAlignment), table_bytes = header.num_tensors * 2 * sizeof(uint64_t);
  if (num_bytes < table || num_bytes - table < table_bytes) return kWrongArgument;
  if (!model.encoder.reserve(header.num_encoder_layers) || !model.decoder.reserve(header.num_decoder_layers))
    return kNoMemory;

  const size_t width = header.width, attention_width = model.attention_width();
  Tensors tensors(packed, num_bytes, table, header.num_tensors);
  model.source_table = tensors.table(header.num_source_tokens, width);
  model.target_table = header.shares_table ? model.source_table : tensors.table(header.num_target_tokens, width);
  const size_t num_positions = header.num_positions * width, num_distances = 2 * header.relative_distance + 1;
  model.source_positions = tensors.take<float>(num_positions, header.relative_distance > 0);
  model.target_positions = header.has_own_positions ? tensors.take<float>(num_positions) : model.source_positions;
  if (header.has_embedding_norm) {
    model.source_embedding_norm = tensors.norm(header);
    model.target_embedding_norm = tensors.norm(header);
  }
  if (header.relative_distance) {
    model.source_bias = tensors.take<float>(header.num_heads * num_distances);
    model.target_bias = tensors.take<float>(header.num_heads * num_distances);
  }
  for (int32_t i = 0; i < header.num_encoder_layers; i++) {
    EncoderLayer& layer = model.encoder[i];
    layer.norm = tensors.norm(header);
    layer.query_key_value = tensors.linear(width, 3 * attention_width);
    layer.output = tensors.linear(attention_width, width);
    layer.feed_forward = tensors.feed_forward(header);
  }
  if (header.has_final_norm) model.encoder_norm = tensors.norm(header);
  model.cross_key_value = tensors.linear(width, 2 * attention_width * header.num_decoder_layers);
  for (int32_t i = 0; i < header.num_decoder_layers; i++) {
    DecoderLayer& layer = model.decoder[i];
    layer.own_norm = tensors.norm(header);
    if (header.is_recurrent) {
      layer.input_forget = tensors.linear(width, 2 * width);
    } else {
      layer.query_key_value = tensors.linear(width, 3 * attention_width);
      layer.own_output = tensors.linear(attention_width, width);
    }
    layer.cross_norm = tensors.norm(header);
    layer.cross_query = tensors.linear(width, attention_width);
    layer.cross_output = tensors.linear(attention_width, width);
    layer.feed_forward = tensors.feed_forward(header);
  }
  if (header.has_final_norm) model.decoder_norm = tensors.norm(header);
  model.projection = tensors.linear(width, header.num_logits);
  model.bans = header.has_bans ? tensors.take<float>(header.num_logits) : nullptr;
  if (header.shares_table && header.num_source_tokens != header.num_target_tokens) return kWrongArgument;
  return tensors.are_good() ? kOk : kWrongArgument;
}

}  // namespace dragoman
