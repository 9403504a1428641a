"""What a caller asks for and what it gets, in plain records: the same for every protocol, for the client, and for an
engine in the caller's own process.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from service.engine.job import FinishReason
from service.errors import DragomanError
from service.queue.callers import Priority


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslateOptions:
    """How to search; None takes the model's default.  `protos/translation.proto` has the meanings and the ranges."""

    beam_size: int | None = None
    num_hypotheses: int | None = None
    length_penalty: float | None = None
    patience: float | None = None
    max_target_tokens: int | None = None
    use_shortlist: bool | None = None
    allow_smaller_beam: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationRequest:
    """Texts, and how they are to be translated."""

    texts: Sequence[str] = ()  # none where these are the settings of a stream
    model: str | None = None
    source_language: str = ""  # empty: the model's
    target_language: str = ""
    options: TranslateOptions = field(default_factory=TranslateOptions)
    priority: Priority | None = None  # None: the highest that the caller may have


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslatedText:
    """One hypothesis for one text."""

    text: str
    score: float  # natural logarithm, length-normalised; not comparable between texts
    finish_reason: FinishReason
    target_tokens: int  # end-of-sentence included where the model produced one


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """The outcome of one text: hypotheses, best first, or an error of its own.

    A blank text has one empty hypothesis.
    """

    hypotheses: tuple[TranslatedText, ...] = ()
    source_tokens: int = 0  # end-of-sentence included; 0 for a blank text
    row_steps: int = 0  # beam x decoder steps of its search; counted by the server, not sent
    error: DragomanError | None = None

    @property
    def text(self) -> str:
        """The best hypothesis' text, empty for a blank source.

        Raises:
            DragomanError: this text failed.
        """
        if self.error is not None:
            raise self.error
        return self.hypotheses[0].text if self.hypotheses else ""


TranslateAll = Callable[[Iterable[str]], Iterator[Translation]]  # lazy, in order


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Milliseconds inside the server: for each phase the longest of the request's texts."""

    tokenize_ms: float = 0.0
    queue_ms: float = 0.0
    encode_ms: float = 0.0
    decode_ms: float = 0.0
    detokenize_ms: float = 0.0
    total_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationResult:
    """The answer to a `TranslationRequest`."""

    translations: Sequence[Translation]  # in the order of the texts
    model: str = ""  # empty: none was found for a text of a stream
    model_version: str = ""
    timings: Timings = field(default_factory=Timings)
    beam_size: int = 0  # of the search; 0: the server does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """A model that can be asked for."""

    name: str
    version: str
    source_language: str  # BCP 47
    target_language: str
    precision: str  # "int8", "fp32" or, on a GPU, "fp16"
    device: str  # "cpu" or "cuda"
    default_options: TranslateOptions
    max_source_tokens: int
    max_beam_size: int
    has_shortlist: bool = False
