"""A student of Marian's, computed in NumPy: the slow, obvious twin.  Not a test."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from model.config import ModelConfig
from tests.parity.marian_npz_model import positions

Floats = NDArray[np.float32]


class Student:
    """A post-norm model with SSRUs, computed from Marian's arrays for one sentence without a batch or a cache."""

    def __init__(self, arrays: Mapping[str, Floats], config: ModelConfig) -> None:
        self.arrays = arrays
        self.config, self.table = config, positions(64, config.d_model)

    def affine(self, x: Floats, name: str, suffix: str) -> Floats:
        return x @ self.arrays[f"{name}_W{suffix}"] + self.arrays[f"{name}_b{suffix}"][0]  # type: ignore[no-any-return]

    def norm(self, x: Floats, name: str) -> Floats:
        scaled = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
        return scaled * self.arrays[f"{name}_ln_scale"][0] + self.arrays[f"{name}_ln_bias"][0]  # type: ignore[no-any-return]

    def attention(self, x: Floats, memory: Floats, name: str) -> Floats:
        heads = [
            np.split(self.affine(y, name, part), self.config.num_heads, axis=-1)
            for y, part in ((x, "q"), (memory, "k"), (memory, "v"))
        ]
        mixed = []
        for query, key, value in zip(*heads, strict=True):
            weights = np.exp(query @ key.T / math.sqrt(self.config.d_head))
            mixed.append(weights / weights.sum(-1, keepdims=True) @ value)
        return self.norm(x + self.affine(np.concatenate(mixed, -1), name, "o"), f"{name}_Wo")

    def feed_forward(self, x: Floats, name: str) -> Floats:
        return self.norm(x + self.affine(np.maximum(self.affine(x, name, "1"), 0), name, "2"), f"{name}_ffn")

    def greedy(self, source: list[int], longest: int, allowed: Sequence[int] = ()) -> list[int]:
        """Return the tokens, of those allowed if any are named."""
        read, table = (self.arrays.get(f"{stack}_Wemb", self.arrays.get("Wemb")) for stack in ("encoder", "decoder"))
        assert read is not None
        assert table is not None
        forbidden = np.isin(np.arange(len(table)), allowed or range(10_000), invert=True)
        scale, names = self.config.d_model**0.5, ("l1", "l2")
        memory = read[source] * scale + self.table[: len(source)]
        for layer in (f"encoder_{name}" for name in names):
            memory = self.feed_forward(self.attention(memory, memory, f"{layer}_self"), f"{layer}_ffn")
        embedded, found = np.zeros(self.config.d_model, np.float32), list[int]()
        cells = dict.fromkeys(names, embedded)
        for step in range(longest):
            x = embedded * scale + self.table[step]
            for name in names:
                rnn = f"decoder_{name}_rnn"
                forget = 1 / (1 + np.exp(-self.affine(x, rnn, "f")))
                cells[name] = forget * cells[name] + (1 - forget) * (x @ self.arrays[f"{rnn}_W"])
                x = self.norm(x + np.maximum(cells[name], 0), f"{rnn}_ffn")
                x = self.attention(x[None], memory, f"decoder_{name}_context")
                x = self.feed_forward(x, f"decoder_{name}_ffn")[0]
            logits = table @ x + self.arrays["decoder_ff_logit_out_b"][0]
            logits[self.config.unk_id] = -np.inf
            logits[forbidden] = -np.inf
            if (token := int(logits.argmax())) == self.config.eos_id:
                return found
            found.append(token)
            embedded = table[token]
        return found
