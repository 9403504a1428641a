"""Hugging Face `generate` in the race, in float32, on a GPU in half precision: the baseline that people
know, where the package is installed.

Pegasus (Zhang et al. 2020) is this project's model under other names: pre-norm with a norm after each stack, sinusoidal
positions, one scaled embedding matrix for source, target and projection.  So the same weights go in, and not an
imitation of the same shape.  Only its position table has another order; ours is put in its place.
"""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from export.builder import Array
from export.linear import State
from model.config import BOS_ID, EOS_ID, PAD_ID, ModelConfig
from tests.bench.race.contestants import SearchOptions, Sentence, Tokens
from tests.bench.race.shapes import Shape

_PARTS = {
    "self_attention_norm": "self_attn_layer_norm",
    "self_attention": "self_attn",
    "cross_attention_norm": "encoder_attn_layer_norm",
    "cross_attention": "encoder_attn",
    "feed_forward_norm": "final_layer_norm",
    "feed_forward": "",
}
_PROJECTIONS = {
    "query": "q_proj",
    "key": "k_proj",
    "value": "v_proj",
    "output": "out_proj",
    "inner": "fc1",
    "outer": "fc2",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HuggingFaceSetting:
    """What can be chosen for a machine."""

    threads: int
    max_batch_size: int = 32

    def __str__(self) -> str:
        return f"{self.threads} threads, {self.max_batch_size} examples"


def is_installed() -> bool:
    """Whether the package `transformers` is there."""
    return importlib.util.find_spec("transformers") is not None


def build_model(shape: Shape, device: str = "cpu") -> Any:
    """The shape as a `PegasusForConditionalGeneration`, ready to run; on a GPU in half precision."""
    transformers = importlib.import_module("transformers")
    transformers.logging.set_verbosity_error()
    model = transformers.PegasusForConditionalGeneration(_config(transformers, shape.config))
    tensors = {name: torch.from_numpy(array) for name, array in parameters(shape.state, shape.positions).items()}
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    if unexpected or set(missing) - {"final_logits_bias"}:  # zeros, as they are made
        raise RuntimeError(f"Pegasus has no place for {unexpected}, or lacks {missing}")
    return model.eval() if device == "cpu" else model.eval().half().to(device)


def parameters(state: State, positions: Array) -> dict[str, Array]:
    """A model's parameters by Pegasus' names."""
    named = {_pegasus_name(name): array for name, array in state.items() if name != "embedding.weight"}
    for name in ("model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head"):
        named[f"{name}.weight"] = state["embedding.weight"]
    for stack in ("encoder", "decoder"):
        named[f"model.{stack}.embed_positions.weight"] = positions
    return named


class HuggingFace:
    """`generate` on batches of sentences of similar length: `Contestant`."""

    def __init__(self, model: Any, setting: HuggingFaceSetting, options: SearchOptions) -> None:
        self._model = model
        self._setting = setting
        self._options = options

    def translate(self, sentences: Sequence[Sentence]) -> list[Tokens]:
        """See `Contestant`."""
        torch.set_num_threads(self._setting.threads)
        order = sorted(range(len(sentences)), key=lambda number: len(sentences[number].ids))
        found: dict[int, Tokens] = {}
        for first in range(0, len(order), self._setting.max_batch_size):
            numbers = order[first : first + self._setting.max_batch_size]
            answers = self._generate([sentences[number].ids for number in numbers])
            found |= dict(zip(numbers, answers, strict=True))
        return [found[number] for number in range(len(sentences))]

    def tokens(self, answer: Tokens) -> Tokens:
        """See `Contestant`."""
        return answer[: answer.index(EOS_ID)] if EOS_ID in answer else answer

    def close(self) -> None:
        """Nothing to do: others may use the model."""

    def _generate(self, sources: Sequence[Sequence[int]]) -> list[Tokens]:
        """One batch, padded on the right; what follows the first decoder input, with end-of-sentence and padding."""
        source = torch.nn.utils.rnn.pad_sequence(
            [torch.tensor(ids) for ids in sources], batch_first=True, padding_value=PAD_ID
        ).to(self._model.device)
        with torch.inference_mode():
            produced = self._model.generate(
                input_ids=source,
                attention_mask=(source != PAD_ID).long(),
                num_beams=self._options.beam_size,
                max_new_tokens=self._options.max_target_tokens,
                early_stopping=True,  # a sentence ends with `num_beams` finished hypotheses, as on the other sides
                do_sample=False,
            )
        rows: list[Tokens] = produced[:, 1:].tolist()
        return rows


def _config(transformers: Any, config: ModelConfig) -> Any:
    stacks = {
        f"{stack}_{name}": value
        for stack in ("encoder", "decoder")
        for name, value in (("ffn_dim", config.d_ff), ("attention_heads", config.num_heads))
    }
    return transformers.PegasusConfig(
        vocab_size=config.vocab_size,
        max_position_embeddings=config.max_positions,
        d_model=config.d_model,
        encoder_layers=config.num_encoder_layers,
        decoder_layers=config.num_decoder_layers,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=PAD_ID,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
        decoder_start_token_id=BOS_ID,
        forced_eos_token_id=None,
        **stacks,
    )


def _pegasus_name(name: str) -> str:
    """decoder.layers.0.feed_forward.inner.bias -> model.decoder.layers.0.fc1.bias."""
    stack, *rest = name.split(".")
    if rest[0] == "norm":
        return ".".join(["model", stack, "layer_norm", rest[1]])
    layers, number, part, *inside = rest
    place = [_PARTS[part], *(_PROJECTIONS.get(word, word) for word in inside)]
    return ".".join(["model", stack, layers, number, *filter(None, place)])
