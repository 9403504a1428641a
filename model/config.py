"""The description of a model and its special ids, shared by training, export and serving.

Knows neither weights nor graphs; imports no torch.
"""

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import NamedTuple

# Of the models that are trained here; others say theirs in `ModelConfig`.
PAD_ID = 0
UNK_ID = 1
BOS_ID = 2  # first decoder input
EOS_ID = 3  # ends every source and every finished target

MOST_POSITIONS = 1 << 16  # a table of them is made before a model's weights are looked at
VOCABULARY_MULTIPLE = 64  # graphs have so many logits, or a multiple: those of a block are ranked together


class Architecture(StrEnum):
    """The kind of encoder-decoder."""

    TRANSFORMER = "transformer"  # Vaswani et al. 2017
    SSRU = "ssru"  # the same with a recurrent unit in place of the decoder's self-attention (Kim et al. 2019)
    LSTM = "lstm"  # Sutskever et al. 2014: the decoder knows the source by one vector
    LSTM_ATTENTION = "lstm_attention"  # Bahdanau et al. 2014, Luong et al. 2015


class NormPlacement(StrEnum):
    """Position of layer normalisation relative to the residual sum."""

    PRE = "pre"  # x + f(norm(x)), usually one more norm after the stack (Xiong et al. 2020)
    POST = "post"  # norm(x + f(x)), as in the paper


class Activation(StrEnum):
    """What stands between the two products of the feed-forward network."""

    RELU = "relu"
    SWISH = "swish"  # x * sigmoid(x), also called SiLU (Ramachandran et al. 2017)
    GELU = "gelu"  # x * Phi(x), with the error function (Hendrycks & Gimpel 2016)
    GELU_TANH = "gelu_tanh"  # the same with their approximation of Phi


class StopRule(StrEnum):
    """When a beam search ends, with K hypotheses in the beam; greedy search ends with its hypothesis."""

    CTRANSLATE2 = "ctranslate2"  # K have ended; as transformers with early_stopping=True
    HF = "hf"  # K have ended, and none of them is worse than the best running one; as transformers by default
    MARIAN = "marian"  # all have ended: each one that does makes the beam smaller


class DecodingProfile(NamedTuple):
    """What a search must know of a model."""

    start: int = BOS_ID  # the first decoder input
    end: int = EOS_ID  # ends a finished target
    stop_rule: StopRule = StopRule.CTRANSLATE2
    forced_end: bool = False  # at the longest length every hypothesis ends with `end`, whose log-probability is 0


USUAL_PROFILE = DecodingProfile()


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimensions:
    """The size of an encoder-decoder Transformer, named after table 3 of Vaswani et al. 2017, and where its norms are.

    An LSTM has `d_model` numbers in embeddings and states, half of them in either direction of the encoder, and neither
    heads, d_ff nor norms.

    Raises:
        ValueError: d_model is not a multiple of num_heads, or a dimension is no positive integer.
    """

    architecture: Architecture = Architecture.TRANSFORMER
    vocab_size: int = 8_000
    d_model: int = 256
    d_ff: int = 1_024
    num_heads: int = 8
    num_encoder_layers: int = 6
    num_decoder_layers: int = 2
    norm_placement: NormPlacement = NormPlacement.PRE
    max_positions: int = 512  # longest source or target in tokens, end-of-sentence included

    def __post_init__(self) -> None:
        for entry in fields(Dimensions):
            if entry.type is int:
                _require_integer(entry.name, getattr(self, entry.name), 1)
        if self.max_positions > MOST_POSITIONS:
            raise ValueError(f"max_positions is {self.max_positions}, at most {MOST_POSITIONS} are accepted")
        self.require_heads()
        object.__setattr__(self, "norm_placement", NormPlacement(self.norm_placement))
        object.__setattr__(self, "architecture", Architecture(self.architecture))

    def require_heads(self) -> None:
        """Raise ValueError if the heads do not fit the width."""
        if self.d_model % self.num_heads:
            raise ValueError(f"d_model is {self.d_model}, it must be a multiple of num_heads ({self.num_heads})")

    @property
    def is_recurrent(self) -> bool:
        """Whether it is no Transformer, neither with self-attention in its decoder nor with SSRUs."""
        return self.architecture not in (Architecture.TRANSFORMER, Architecture.SSRU)

    @property
    def d_head(self) -> int:
        """Width of one attention head (d_k = d_v in the paper)."""
        return self.d_model // self.num_heads


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig(Dimensions):
    """All that a Transformer is beside its weights; the defaults are the kind of model that is trained here.

    Raises:
        ValueError: a part has the wrong type, lies outside its range, or does not fit another; the message names it.
    """

    target_vocab_size: int | None = None  # None: as many as source tokens
    pad_id: int = PAD_ID  # fills a batch in training
    unk_id: int = UNK_ID  # an unknown source token
    start_id: int = BOS_ID  # the first decoder input
    eos_id: int = EOS_ID  # ends a finished target
    suppressed_ids: tuple[int, ...] = ()  # target tokens that are never written
    suppressed_keep_mass: bool = False  # they have their share of the probabilities; else their logits are -infinity

    shared_embeddings: bool = True  # source and target tokens have one table
    tied_projection: bool = True  # the projection is the table of the target tokens
    projection_bias: bool = False
    scaled_embeddings: bool = True  # times sqrt(d_model)
    position_table: bool = False  # part of the parameters; otherwise the paper's
    separate_positions: bool = False  # the decoder has a position table of its own, part of the parameters
    relative_distance: int = 0  # of two tokens, beyond which self-attention tells no farther; 0: positions are added
    embedding_norm: bool = False  # behind the sum of embedding and position, in either stack
    final_norm: bool | None = None  # after either stack; None: with pre-norm
    norm_epsilon: float = 1e-5
    rms_norm: bool = False  # norms neither subtract the mean nor have a bias (Zhang & Sennrich 2019)
    activation: Activation = Activation.RELU
    gated: bool = False  # the activation's outputs are factors of a second product's (Shazeer 2020)
    head_width: int | None = None  # of one attention head; None: d_model / num_heads

    def __post_init__(self) -> None:
        Dimensions.__post_init__(self)
        for entry in fields(self):
            value = getattr(self, entry.name)
            if entry.type in (bool, bool | None) and type(value) is not bool and value is not entry.default:
                raise ValueError(f"{entry.name} is {value!r}, it must be true or false")
        if self.separate_positions and not self.position_table:
            raise ValueError("separate_positions is true and position_table false: a table of its own needs both")
        if type(self.norm_epsilon) is not float or not 0.0 < self.norm_epsilon < 1.0:
            raise ValueError(f"norm_epsilon is {self.norm_epsilon!r}, it must be a number between 0 and 1")
        _require_integer("relative_distance", self.relative_distance, 0)
        if self.relative_distance and (self.position_table or self.architecture is not Architecture.TRANSFORMER):
            raise ValueError("relative_distance is not 0: only a Transformer without position_table has that")
        object.__setattr__(self, "activation", Activation(self.activation))
        object.__setattr__(self, "suppressed_ids", tuple(self.suppressed_ids))
        self._require_vocabularies()

    def require_heads(self) -> None:
        """Raise ValueError if the heads do not fit the width, or theirs is none."""
        if self.head_width is None:
            Dimensions.require_heads(self)
        else:
            _require_integer("head_width", self.head_width, 1)

    def _require_vocabularies(self) -> None:
        if self.target_vocab_size is not None:
            _require_integer("target_vocab_size", self.target_vocab_size, 1)
        if self.shared_embeddings and self.num_target_tokens != self.vocab_size:
            raise ValueError(
                f"target_vocab_size is {self.num_target_tokens} and vocab_size {self.vocab_size}: "
                "shared_embeddings must be false"
            )
        _require_integer("pad_id", self.pad_id, 0, self.largest_vocabulary - 1)
        _require_integer("unk_id", self.unk_id, 0, self.vocab_size - 1)
        for name, token in (("start_id", self.start_id), ("eos_id", self.eos_id)):
            _require_integer(name, token, 0, self.num_target_tokens - 1)
        for token in self.suppressed_ids:
            _require_integer("one of suppressed_ids", token, 0, self.num_target_tokens - 1)
        if self.eos_id in self.suppressed_ids:
            raise ValueError(f"eos_id ({self.eos_id}) is one of suppressed_ids: no translation could end")

    @property
    def d_head(self) -> int:
        """Width of one attention head."""
        return self.head_width or self.d_model // self.num_heads

    @property
    def attention_width(self) -> int:
        """Width of all heads side by side."""
        return self.num_heads * self.d_head

    @property
    def num_target_tokens(self) -> int:
        """Tokens that a translation may have."""
        return self.vocab_size if self.target_vocab_size is None else self.target_vocab_size

    @property
    def cache_parts(self) -> tuple[str, ...]:
        """What each decoder layer keeps of the tokens so far, besides what it keeps of the source."""
        return ("key",) if self.architecture is Architecture.SSRU else ("key", "value")

    @property
    def largest_vocabulary(self) -> int:
        """Source or target tokens, whichever are more: the ids of a shortlist are below."""
        return max(self.vocab_size, self.num_target_tokens)

    @property
    def num_logits(self) -> int:
        """Logits of a graph that is drawn now: the target tokens, and padding that is never written."""
        return -(-self.num_target_tokens // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE

    @property
    def has_final_norm(self) -> bool:
        """Whether a norm follows either stack."""
        return self.norm_placement is NormPlacement.PRE if self.final_norm is None else self.final_norm

    @property
    def target_table(self) -> str:
        """Name of the parameter that embeds target tokens, without `.weight`."""
        return "embedding" if self.shared_embeddings else "target_embedding"

    @property
    def projection_table(self) -> str:
        """Name of the parameter that makes logits of states, without `.weight`."""
        return self.target_table if self.tied_projection else "projection"


def _require_integer(name: str, value: object, least: int, most: int | None = None) -> None:
    if type(value) is not int:  # a bool is an int by inheritance
        raise ValueError(f"{name} is {value!r}, it must be an integer")
    if value < least:
        raise ValueError(f"{name} is {value}, at least {least} is needed")
    if most is not None and value > most:
        raise ValueError(f"{name} is {value}, at most {most} is possible: its vocabulary has {most + 1} tokens")
