"""What an engine and the process that runs it send each other: the spec, jobs, cancellations, outcomes, reports.

Plain records, token ids and search parameters; no text, no gRPC, no NumPy.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Literal, NamedTuple

from model.spelling import Spellings
from service.errors import InternalError

Device = Literal["cpu", "cuda"]
Runtime = Literal["auto", "native", "onnxruntime"]  # of a CPU; auto: the native engine where it can serve the model
BUNDLE_RUNNER = "service.engine.worker:create_runner"  # native or ONNX Runtime, by the device and the bundle

BUDGETS = ("max_rows", "max_source_tokens", "max_encode_tokens", "max_ahead_tokens", "encoder_run_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """Budgets of the running batch.  A single job over a budget still runs, alone."""

    max_rows: int = 128  # live hypotheses
    max_source_tokens: int = 16_384  # of running sentences, each counted with its `Job.source_width`
    max_encode_tokens: int = (
        2_048  # the same, and what is scored, of what starts at once: running sentences wait for it
    )
    max_ahead_tokens: int = 512  # of sentences that are encoded before there is room for them, padding included
    encoder_run_tokens: int = 192  # of one run, padding included; on a CPU, more gain nothing, and the batch waits

    def __post_init__(self) -> None:
        for name in BUDGETS:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, at least 1 is needed")


# Where nothing else is said.  A GPU's step costs launches more than rows, so rows come by the thousand; measure them
# with bench/bench_gpu.py.
GPU_BUDGETS = SchedulerConfig(
    max_rows=1_024,
    max_source_tokens=65_536,
    max_encode_tokens=32_768,
    max_ahead_tokens=8_192,
    encoder_run_tokens=16_384,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """Everything an engine process needs to know."""

    bundle_dir: Path
    device: Device = "cpu"
    runtime: Runtime = "auto"
    cuda_graphs: bool = True  # on a GPU: record the step of each shape and replay it
    precision: str | None = None  # None: the best the bundle has for the device
    num_threads: int = 1  # that compute one operator
    is_one_of_several: bool = False  # engines of a model
    shared_weights: bool = False  # of the native engine: the engines of a model map one copy of its weights ...
    packed_weights: Path | None = None  # ... which is this file
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    heartbeat_interval_s: float = 0.25
    runner_factory: str = BUNDLE_RUNNER  # "module:function", called with this spec
    preflight: str = ""  # "module:function", called with this spec before; its error ends the start.  Empty: nothing
    manifest_sha256: str = ""  # of the bundle to load; empty: any bundle in that directory


SMALLEST_WIDTH = 64


class FinishReason(StrEnum):
    """Why a hypothesis ended."""

    END_OF_SENTENCE = "end_of_sentence"
    LENGTH = "length"
    REPETITION = "repetition"  # it would only have gone on to repeat itself


class FailureKind(StrEnum):
    """Why a job has no result."""

    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    NON_FINITE = "non_finite"  # the model produced NaN or infinity for this sentence
    INTERNAL = "internal"
    OUT_OF_MEMORY = "out_of_memory"


class SearchParams(NamedTuple):
    """How to search for one sentence; semantics as in `protos/translation.proto`."""

    beam_size: int = 4
    num_hypotheses: int = 1
    length_penalty: float = 1.0
    patience: float = 1.0
    max_target_tokens: int = 256  # decoder steps: end-of-sentence included
    use_shortlist: bool = False  # where the model has one
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0  # 0: any
    min_target_tokens: int = 0  # end-of-sentence not included
    suppressed: Spellings = ()  # of phrases that no hypothesis contains
    sampling_top_k: int = 0  # 0: the best hypothesis is searched for
    sampling_top_p: float = 1.0
    sampling_temperature: float = 1.0
    sampling_seed: int = 0
    return_alternatives: bool = False
    stop_repetition: bool = False  # end a sentence whose hypotheses only repeat themselves

    @property
    def num_searches(self) -> int:
        """Searches that a sentence takes: one for each alternative."""
        return self.num_hypotheses if self.return_alternatives else 1

    @property
    def num_rows(self) -> int:
        """Live hypotheses of a sentence."""
        return self.num_searches * self.beam_size


class Job(NamedTuple):
    """One sentence to translate, or one translation to score."""

    source_ids: tuple[int, ...]  # ends with end-of-sentence
    params: SearchParams
    prefix_ids: tuple[int, ...] = ()  # every hypothesis begins with them
    scored_ids: tuple[int, ...] | None = None  # a translation, without end-of-sentence, to score; None: search for one
    shows_heads: bool = False  # of a translation to score: whether the attention weights of all heads are wanted
    # Set by the pool that gives the job to an engine.
    id: int = 0
    deadline: float | None = None  # on time.monotonic(), which all processes of a machine share
    submitted_at: float | None = None  # same clock; None: when the engine gets it
    is_batch: bool = False  # whether it leaves most of an engine to interactive work, while there is any

    @property
    def num_tokens(self) -> int:
        """Number of source tokens, and of those of a translation to score, that graphs read at once."""
        return len(self.source_ids) + len(self.scored_ids or ())

    @property
    def source_width(self) -> int:
        """The power of two that holds the source: sentences of one width share their padding."""
        num_tokens = len(self.source_ids)
        return SMALLEST_WIDTH if num_tokens <= SMALLEST_WIDTH else 1 << (num_tokens - 1).bit_length()


SCORED_MULTIPLE = 16  # that both sides of a pair to score are padded to, end-of-sentence included


def scored_shape(num_source: int, num_target: int) -> tuple[int, int]:
    """Return the lengths that the sides of a pair to score are padded to.

    They depend on that pair alone: the shape of a product decides the order of its sums, and so the last bits of a
    result that must not depend on the batch.
    """
    return -(-num_source // SCORED_MULTIPLE) * SCORED_MULTIPLE, -(-num_target // SCORED_MULTIPLE) * SCORED_MULTIPLE


class Hypothesis(NamedTuple):
    """One finished translation."""

    token_ids: tuple[int, ...]  # without end-of-sentence
    score: float  # log-probability, length-normalised
    finish_reason: FinishReason


class HeadWeights(NamedTuple):
    """Attention weights of each head for a source of S and a translation of T tokens, ends included; 255 stands for 1.

    Encoder layers and decoder layers need not be equally many: uint8 [layers, H, S, S] and [layers, H, T, S].
    """

    num_heads: int
    encoder: bytes
    cross: bytes


class TokenScores(NamedTuple):
    """What the model says of a given translation of T - 1 tokens and its end-of-sentence, for a source of S tokens."""

    log_probs: tuple[float, ...]  # T natural logarithms
    attention: bytes  # float16 [T, S], row by row: of the heads that align best; each row sums up to 1
    heads: HeadWeights | None = None  # where they were asked for


class JobResult(NamedTuple):
    """A job's hypotheses, best first, and where its time went."""

    job_id: int
    hypotheses: tuple[Hypothesis, ...]
    queue_s: float  # from Job.submitted_at until it got its rows, less encode_s
    encode_s: float  # the encoder run it shared with its batch
    decode_s: float  # from its first rows until its last step
    num_steps: int
    scores: TokenScores | None = None  # of a job that scores: its one hypothesis is the given translation
    beam_size: int = 1
    row_steps: int = 0  # hypotheses x decoder steps of the search


class JobFailure(NamedTuple):
    """A job that ended without a result."""

    job_id: int
    kind: FailureKind
    message: str


Outcome = JobResult | JobFailure
Settled = JobResult | InternalError  # what became of a job whose call goes on, be it without an answer for its text


@dataclass(slots=True, kw_only=True)
class StepStats:
    """What the engine did since its last report: sums and lists, which can be added up over reports."""

    steps: int = 0  # decoder graph runs; one step of the loop runs one per group of sentences
    loop_steps: int = 0  # decoder steps, where those of sentences that take turns count once
    rows: int = 0  # live hypotheses, summed over those runs: the mean batch is rows / steps
    step_rows: list[int] = field(default_factory=list)  # live hypotheses of each run, for a histogram
    step_decode_s: list[float] = field(default_factory=list)  # each run of the decoder graph
    step_beam_s: list[float] = field(default_factory=list)  # search and caches after each of them
    encode_s: list[float] = field(default_factory=list)  # each run of the encoder
    score_s: list[float] = field(default_factory=list)  # each run of the scorer
    busy_s: float = 0.0  # the whole of EngineLoop.step
    encoded_sentences: int = 0
    source_tokens: int = 0  # of those sentences
    padded_source_tokens: int = 0  # positions the encoder computed for them
    wasted_steps: int = 0  # steps spent on sentences that were then cancelled or late
    unrecorded_steps: int = 0  # of `steps`, those on a GPU that found no recording to replay
    non_finite_jobs: int = 0  # sentences that failed because the model produced NaN or infinity
    live_rows: int = 0  # at the time of the report, as are the following
    waiting_jobs: int = 0  # inside the engine
    max_rows: int = 0  # budget of live hypotheses; 0 means the configured budget
    max_source_tokens: int = 0  # budget of running sentences' source tokens; 0 means the configured budget


class CancelJob(NamedTuple):
    """End a job at the next step; its outcome still comes."""

    job_id: int


Command = Job | CancelJob  # a job is queued


class Report(NamedTuple):
    """What has happened in an engine since its last report; an empty one is a sign of life."""

    outcomes: tuple[Outcome, ...] = ()
    stats: StepStats | None = None
