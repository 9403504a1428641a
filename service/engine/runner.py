"""What the loop needs of a model: a runner of its graphs, and the state of the sentences that decode together.

`cpu/` and `cuda/` have a runner and a state each; another kind of model or of device is added as another runner.  At
the end stands what runners of exported graphs share.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from model.bundle import Bundle, BundleError
from model.config import DecodingProfile
from service.engine.beams import Beams, Candidates, Floats, Ints, StepOutcome
from service.engine.logits import Edits
from service.engine.wire import HeadWeights, SchedulerConfig, TokenScores

if TYPE_CHECKING:
    import onnxruntime as ort


class DecoderState(Protocol):
    """What the decoder remembers of the sentences of a group, numbered from 0 without holes as in `BeamSearch`."""

    @property
    def has_grown(self) -> bool:
        """Whether an empty state of this size is worth replacing by a new one."""
        ...

    def append(self, encoded: Any, indices: Sequence[int]) -> None:
        """Add the sentences with these indices of a batch that `Runner.encode` returned, in this order."""
        ...

    def remove(self, index: int, *, is_finite: bool = True) -> None:
        """Forget a sentence, whose NaN must not reach others; the last sentence takes its number."""
        ...

    def advance(self, parents: Ints) -> None:
        """Finish a decoder step: hypothesis k of sentence b goes on from the past of hypothesis `parents[b, k]`."""
        ...


class Runner(Protocol):
    """A model on a device.  Methods raise MemoryError where there is too little memory for what is asked."""

    @property
    def has_scorer(self) -> bool:
        """Whether `score` works."""
        ...

    @property
    def profile(self) -> DecodingProfile:
        """What a search must know of the model."""
        ...

    @property
    def warm_up_source(self) -> tuple[int, ...]:
        """Ids of a short source sentence, end-of-sentence included, that the model can translate."""
        ...

    def budgets(self, wanted: SchedulerConfig) -> SchedulerConfig:
        """Return the wanted budgets, cut down to what the device has memory for."""
        ...

    def new_state(self, beam_size: int, *, use_shortlist: bool) -> DecoderState:
        """Return the state of a group without sentences, which keep to their shortlists if that is wanted."""
        ...

    def encode(self, sources: Sequence[Sequence[int]]) -> Any:
        """Encode sentences that end with end-of-sentence; others see `num_columns` of the batch, padding included."""
        ...

    def score(self, encoded: Sequence[tuple[Any, int]], translations: Sequence[Sequence[int]]) -> list[TokenScores]:
        """Read given translations, each in one pass.

        Args:
            encoded: of each sentence, the batch that `encode` returned and its index there.
            translations: without end-of-sentence; of pairs that `scored_shape` pads alike.

        Raises:
            BundleError: the bundle has no graph for it.
        """
        ...

    def head_weights(self, source: Sequence[int], translation: Sequence[int]) -> HeadWeights:
        """Return what each head attends to in a sentence and its translation, which has no end-of-sentence.

        Raises:
            BundleError: the bundle's graphs do not give it.
        """
        ...

    def decode_step(
        self, tokens: Ints, scores: Floats, state: Any, edits: Edits | None = None, *, num_candidates: int
    ) -> Candidates:
        """Run the decoder for one token of every hypothesis; `state.advance` has to follow.

        Args:
            tokens: [B, K], the newest token of every hypothesis.
            scores: [B, K], what is added to the log-probabilities of its next tokens.
            state: of the same sentences, from this runner.
            edits: of the logits; None: none.
            num_candidates: C, at least 1.

        Returns:
            The C best extensions of each sentence, or all where there are fewer; valid until the next call.
        """
        ...


@runtime_checkable
class AheadRunner(Runner, Protocol):
    """A runner that can take several steps of plain sentences at once, and pads none to the length of another."""

    def decode_ahead(
        self, beams: Beams, state: Any, end: int, most: int, *, num_candidates: int
    ) -> tuple[Candidates, StepOutcome, int]:
        """Run the decoder for the newest tokens of `beams`, and on while there is nothing for others to decide.

        The hypotheses are extended behind each step.  The last one is the first behind which a sentence ends, is not
        finite or undecided, or the one with number `most`, at least 1; `state.advance` has to follow it.

        Returns:
            The candidates of the last step, what all steps have made of the hypotheses, and the number of steps.
        """
        ...


@runtime_checkable
class LaunchingRunner(Runner, Protocol):
    """A runner of a device that computes by itself, while the host goes on with something else.

    Groups of sentences have lanes.  Each lane has at most one step under way; the steps of the lanes take turns on the
    device, so that it has one to do while the host looks at what the other has found.
    """

    num_lanes: int

    def new_state(self, beam_size: int, *, use_shortlist: bool, lane: int = 0) -> DecoderState:
        """As `Runner.new_state`, of a group with this lane, from 0 on."""
        ...

    def launch(
        self, tokens: Ints, scores: Floats, state: Any, edits: Edits | None = None, *, num_candidates: int
    ) -> Any:
        """Begin a step with the arguments of `decode_step`; the state stays as it is until `collect` has returned."""
        ...

    def collect(self, launched: Any) -> Candidates:
        """Wait for the step that `launch` has begun, and return what `decode_step` does."""
        ...


FULL_LANE = 128  # sentences: a GPU's step takes as long for a few as for so many


def most_in_lane(max_sentences: int, lane: int) -> int:
    """Return how many sentences a lane usually has at most, where so many may run at once."""
    if max_sentences <= FULL_LANE:
        return 0 if lane else max_sentences
    return max(FULL_LANE, 2 * max_sentences // 3)  # they have as many, but for what ends by chance


@runtime_checkable
class RecordingRunner(Runner, Protocol):
    """A runner whose steps are recorded once for each shape, and replayed where the shape comes up again."""

    def record(self, budgets: SchedulerConfig) -> None:
        """Record what usual sentences need, as many as the budgets let run at once."""
        ...

    def take_unrecorded(self) -> int:
        """Return how many steps since the last call found no recording."""
        ...


NO_SCORER = "has no graph that scores and aligns translations; `python -m export BUNDLE BUNDLE` draws it"
NO_HEAD_WEIGHTS = "does not show its attention; `python -m export BUNDLE BUNDLE` draws graphs that do"


class BundleRunner:
    """What the runners of a bundle share."""

    def __init__(self, bundle: Bundle) -> None:
        """Refuse limits beyond the position table with BundleError: a step past its end would fail the whole batch."""
        self._bundle, self._config, decoding = bundle, bundle.manifest.config, bundle.manifest.decoding
        for name in ("max_target_tokens", "max_source_tokens"):
            limit, positions = getattr(decoding, name), self._config.max_positions
            if limit > positions:
                raise BundleError(
                    f"{bundle.directory}: {name} is {limit}, the model has {positions} positions; export again"
                )
        self.profile, self.warm_up_source = bundle.manifest.profile, (self._config.unk_id, self._config.unk_id)

    def budgets(self, wanted: SchedulerConfig) -> SchedulerConfig:
        """Return the wanted budgets unchanged: the operator decides how much memory they may take."""
        return wanted

    def _refusal(self, reason: str) -> BundleError:
        """Return the error of a bundle that lacks something."""
        manifest = self._bundle.manifest
        return BundleError(f"{self._bundle.directory} ({manifest.name} {manifest.version}) {reason}")


class StepGraph(NamedTuple):
    """A graph of one decoder step."""

    session: "ort.InferenceSession"
    takes_factors: bool  # those of older bundles do not

    @classmethod
    def of(cls, session: "ort.InferenceSession") -> Self:
        """Describe an open graph."""
        return cls(session, any(value.name == "edit_factors" for value in session.get_inputs()))

    def edit_inputs(self, edits: Edits, num_columns: int) -> dict[str, npt.NDArray[Any]]:
        """Return the inputs that say where the logits, with so many columns a row, change, and how."""
        arrays = {"edit_places": edits.rows * num_columns + edits.tokens, "edit_values": edits.values}
        return arrays | {"edit_factors": edits.factors} if self.takes_factors else arrays


def layer_names(kind: str, num_layers: int, parts: Sequence[str] = ("key", "value")) -> list[str]:
    """Return the graphs' names of a cache's arrays: cross_key_0, cross_value_0, cross_key_1, ..."""
    return [f"{kind}_{part}_{layer}" for layer in range(num_layers) for part in parts]


def pad(sources: Sequence[Sequence[int]]) -> tuple[Ints, npt.NDArray[np.int32]]:
    """Return source ids [B, S], padded on the right to the longest, and lengths [B]."""
    lengths = np.array([len(source) for source in sources], np.int32)
    source_ids = np.zeros((len(sources), lengths.max()), np.int64)  # any id: nothing looks at it
    for row, source in zip(source_ids, sources, strict=True):
        row[: len(source)] = source
    return source_ids, lengths


def teacher_forced(
    profile: DecodingProfile, translations: Sequence[Sequence[int]], num_steps: int
) -> tuple[Ints, Ints]:
    """Return the decoder's inputs [B, T] for given translations, and the token after each."""
    ids = np.zeros((len(translations), num_steps + 1), np.int64)
    for row, translation in zip(ids, translations, strict=True):
        row[: len(translation) + 2] = (profile.start, *translation, profile.end)
    return ids[:, :-1], ids[:, 1:]


def token_scores(
    log_probs: Floats, attention: Floats, lengths: Sequence[int], translations: Sequence[Sequence[int]]
) -> list[TokenScores]:
    """Return what a scorer's outputs, [B, T] and [B, T, S], say of translations of sources with these lengths."""
    return [
        TokenScores(
            tuple(log_probs[row, : len(translation) + 1].tolist()),
            attention[row, : len(translation) + 1, :length].astype(np.float16).tobytes(),
        )
        for row, (length, translation) in enumerate(zip(lengths, translations, strict=True))
    ]
