"""The shape of a model and its special ids, shared by training, export and serving.

Knows neither weights nor graphs; imports no torch.
"""

from dataclasses import asdict, dataclass
from enum import StrEnum

PAD_ID = 0
UNK_ID = 1
BOS_ID = 2  # first decoder input
EOS_ID = 3  # ends every source and every finished target


class NormPlacement(StrEnum):
    """Position of layer normalisation relative to the residual sum."""

    PRE = "pre"  # x + f(norm(x)), one more norm after the stack (Xiong et al. 2020)
    POST = "post"  # norm(x + f(x)), as in the paper


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Dimensions of an encoder-decoder Transformer, named after table 3 of Vaswani et al. 2017.

    Raises:
        ValueError: d_model is not a multiple of num_heads, or a dimension is no positive integer.
    """

    vocab_size: int = 8_000
    d_model: int = 256
    d_ff: int = 1_024
    num_heads: int = 8
    num_encoder_layers: int = 6
    num_decoder_layers: int = 2
    norm_placement: NormPlacement = NormPlacement.PRE
    max_positions: int = 512  # longest source or target in tokens, end-of-sentence included

    def __post_init__(self) -> None:
        dimensions = {name: value for name, value in asdict(self).items() if name != "norm_placement"}
        for name, value in dimensions.items():
            if type(value) is not int:  # a bool is an int by inheritance
                raise ValueError(f"{name} is {value!r}, it must be an integer")
            if value < 1:
                raise ValueError(f"{name} is {value}, at least 1 is needed")
        if self.d_model % self.num_heads:
            raise ValueError(f"d_model is {self.d_model}, it must be a multiple of num_heads ({self.num_heads})")
        object.__setattr__(self, "norm_placement", NormPlacement(self.norm_placement))

    @property
    def d_head(self) -> int:
        """Width of one attention head (d_k = d_v in the paper)."""
        return self.d_model // self.num_heads
