"""What a caller asks for and gets, in plain records.

They are the same for every protocol, for the client, and for an engine in the caller's own process.

Nobody changes a record that it was given.  Those that every call makes are not frozen all the same: frozen ones take
three times as long to create.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

from model.languages import Language
from model.manifest import LENGTH_PENALTY_RANGE, MAX_BEAM_SIZE, PATIENCE_RANGE
from service.engine.wire import FinishReason, HeadWeights
from service.errors import DragomanError
from service.ranges import Range


class Priority(IntEnum):
    """Which work goes first; a lower number goes before a higher one."""

    INTERACTIVE = 0
    BATCH = 1

    @property
    def label(self) -> str:
        """The name of the class in metrics and files: "interactive" or "batch"."""
        return _LABELS[self]


_LABELS = {priority: priority.name.lower() for priority in Priority}


class TextFormat(StrEnum):
    """What a text is written in."""

    PLAIN = "plain"
    HTML = "html"
    XML = "xml"
    XLIFF = "xliff"


class Segmentation(StrEnum):
    """How a text is cut into segments."""

    SENTENCE = "sentence"
    LINE = "line"  # each line, or what is one block of markup, but for lines of wrapped prose, which are one
    SENTENCE_AND_LINE = "sentence_and_line"  # every line break ends a sentence
    SENTENCE_ACROSS_LINES = "sentence_across_lines"  # no single line break does
    NONE = "none"  # the whole text goes to the model as it is, unprotected and unchecked


class WarningKind(StrEnum):
    """What can go wrong with the translation of a segment; `protos/translation.proto` has the meanings."""

    NOT_TRANSLATED = "not_translated"
    TRUNCATED = "truncated"
    REPETITION = "repetition"
    COPIED = "copied"
    EMPTY = "empty"
    WRONG_SCRIPT = "wrong_script"
    LENGTH_RATIO = "length_ratio"
    LOW_COVERAGE = "low_coverage"
    UNKNOWN_CHARACTERS = "unknown_characters"
    TERM_MISSED = "term_missed"
    SPLIT = "split"
    NUMBERS = "numbers"


class Span(NamedTuple):
    """Code points begin <= i < end of a text."""

    begin: int
    end: int


NOWHERE = Span(0, 0)


class Link(NamedTuple):
    """A word of the source and one of the translation that belong together."""

    source: Span
    target: Span


class TextWarning(NamedTuple):
    """What went wrong with a segment."""

    kind: WarningKind
    message: str
    source: Span  # the segment in the text of the request


class DetectedLanguage(NamedTuple):
    """What a text is written in."""

    language: str  # BCP 47, of those asked about; empty: no language, none of those, or too little to tell
    confidence: float  # from 0 to 1


class Term(NamedTuple):
    """A word or phrase with the translation that it has to get; an empty target keeps it as it is."""

    source: str
    target: str = ""


class TermUse(NamedTuple):
    """A term of the glossary in a text."""

    term: Term
    span: Span  # in the text of the request
    is_honoured: bool  # whether the translation has it as asked for


class SearchOption(NamedTuple):
    """What is said of an option beyond its type: it is checked by this, and the command line is made from it."""

    range: Range | None  # of a number; a model's own limits may be narrower
    help: str  # on the command line; empty: it has none there
    names: tuple[str, ...]  # there, if not its own with dashes
    flag_gives: bool  # its value where it is a flag, and given


def _option(
    help: str = "",  # noqa: A002 - as typer's own
    *names: str,
    within: Range | None = None,
    flag_gives: bool = True,
    default: object = None,
) -> Any:
    return field(default=default, metadata={"option": SearchOption(within, help, names, flag_gives)})


BEAM = Range(least=1, most=MAX_BEAM_SIZE)  # a server's own limit may be lower, and says so
_SEED = Range(least=0, most=(1 << 64) - 1)


def _numbers(least: float, most: float) -> Range:
    return Range(least=least, most=most, is_whole=False)


def _tokens(least: int) -> Range:
    return Range(least=least, most=100_000, unit="tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslateOptions:
    """How to search; None takes the model's default.  `protos/translation.proto` has the meanings and the ranges.

    A new option is a field here and in the contract, and where it changes a search a field of `SearchParams`.
    """

    beam_size: int | None = _option("1 is greedy search.", "--beam-size", "-b", within=BEAM)
    num_hypotheses: int | None = _option("Translations per text.", "--num-hypotheses", "-n", within=BEAM)
    return_alternatives: bool | None = _option("With -n: translations that begin differently.", "--alternatives")
    length_penalty: float | None = _option("0 prefers short translations.", within=_numbers(*LENGTH_PENALTY_RANGE))
    patience: float | None = _option("More than 1 searches longer.", within=_numbers(*PATIENCE_RANGE))
    max_target_tokens: int | None = _option("Longest translation in tokens.", within=_tokens(1))
    min_target_tokens: int | None = _option("Shortest translation in tokens.", within=_tokens(0))
    repetition_penalty: float | None = _option("More than 1 avoids tokens that came before.", within=_numbers(1, 10))
    no_repeat_ngram_size: int | None = _option(
        "No sequence of N tokens comes twice.", "--no-repeat-ngram", within=Range(least=0, most=32)
    )
    suppressed_phrases: tuple[str, ...] = _option(
        "Keep it out of translations; may be repeated.", "--suppress", default=()
    )
    sampling_top_k: int | None = _option(
        "Draw each token among this many best ones, with a beam of 1.", "--top-k", within=Range(least=0, most=1_000)
    )
    sampling_top_p: float | None = _option(
        "With --top-k: among the likeliest whose probabilities sum up to this.", "--top-p", within=_numbers(0, 1)
    )
    sampling_temperature: float | None = _option(
        "With --top-k: more than 1 draws bolder.", "--temperature", within=_numbers(0.05, 5)
    )
    sampling_seed: int | None = _option("With --top-k: the same number draws the same again.", "--seed", within=_SEED)
    use_shortlist: bool | None = _option("Only target tokens that the model's shortlist names: faster.", "--shortlist")
    stop_repetition: bool | None = _option(
        "Go on with a translation that only repeats itself.", "--keep-repetition", flag_gives=False
    )
    segmentation: Segmentation | None = _option()  # noqa: RUF009 - it is dataclasses.field
    allow_smaller_beam: bool | None = _option()
    use_cache: bool | None = _option()


NO_OPTIONS = TranslateOptions()  # the model's defaults for all
OPTIONS: dict[str, SearchOption] = {each.name: each.metadata["option"] for each in fields(TranslateOptions)}


@dataclass(slots=True, kw_only=True)
class TranslationRequest:
    """Texts, and how they are to be translated."""

    texts: Sequence[str] = ()  # none where these are the settings of a stream
    model: str | None = None
    source_language: str = ""  # empty: the model's
    target_language: str = ""
    options: TranslateOptions = NO_OPTIONS
    priority: Priority | None = None  # None: the highest that the caller may have
    format: TextFormat = TextFormat.PLAIN
    return_alignments: bool = False
    glossary_name: str = ""  # of a glossary that the server has
    terms: tuple[Term, ...] = ()  # go before those of the named glossary
    target_prefixes: tuple[str, ...] = ()  # none, or one for each text
    allows_same_language: bool = False  # texts come back as they are where source and target are one; else NotFound


@dataclass(slots=True, kw_only=True)
class TranslatedText:
    """One hypothesis for one text."""

    text: str
    score: float  # natural logarithm, length-normalised; not comparable between texts
    finish_reason: FinishReason
    target_tokens: int  # end-of-sentence included where the model produced one


@dataclass(slots=True, kw_only=True)
class TranslatedSegment:
    """One piece of a text that was translated by itself."""

    source: Span  # in the text of the request
    target: Span = NOWHERE  # in the text of the best hypothesis, once that is put together
    hypotheses: tuple[TranslatedText, ...] = ()  # best first
    warnings: tuple[TextWarning, ...] = ()
    quality: float | None = None  # estimate from 0 to 1; None: not computed
    links: tuple[Link, ...] = ()  # from the text of the request to that of the best hypothesis

    # Summed up in its text's translation, and not sent.
    terms: tuple[TermUse, ...] = field(default=(), compare=False)
    source_tokens: int = field(default=0, compare=False)
    row_steps: int = field(default=0, compare=False)
    retries: int = field(default=0, compare=False)
    error: DragomanError | None = field(default=None, compare=False)  # then there is no hypothesis


@dataclass(slots=True, kw_only=True)
class Translation:
    """The outcome of one text: hypotheses, best first, or an error of its own.

    A blank text has one hypothesis, which is that text.
    """

    hypotheses: tuple[TranslatedText, ...] = ()
    source_tokens: int = 0  # end-of-sentence included; 0 for a blank text
    row_steps: int = 0  # beam x decoder steps of its search; counted by the server, not sent
    retries: int = 0  # segments that were translated a second time; likewise
    error: DragomanError | None = None
    segments: tuple[TranslatedSegment, ...] = ()
    detected_language: str = ""  # where the server has detected it
    detection_confidence: float = 0.0
    pivot_language: str = ""  # between the two models, where no model translates the pair
    pivot_warnings: tuple[TextWarning, ...] = ()  # of both models: such a text has no segments
    terms: tuple[TermUse, ...] = ()

    @property
    def warnings(self) -> tuple[TextWarning, ...]:
        """What went wrong, of all segments."""
        return (*self.pivot_warnings, *(warning for segment in self.segments for warning in segment.warnings))

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


@dataclass(slots=True, kw_only=True)
class TranslationResult:
    """The answer to a `TranslationRequest`."""

    translations: Sequence[Translation]  # in the order of the texts
    model: str = ""  # empty: none was found for a text of a stream
    model_version: str = ""
    timings: Timings = Timings()  # for a client: a server sends those of the call
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
    has_repetition_penalty: bool = False  # whether its graphs take what the option needs; a client is not told
    reliable_source_tokens: int | None = None  # longer sentences are better cut; None: not known, or not sent
    has_scorer: bool = False  # whether it scores and aligns given translations
    has_head_weights: bool = False  # whether it shows what each attention head looks at; a client is not told
    runtime: str = ""  # what computes: "native" or "onnxruntime"; empty: the server does not say
    runtime_detail: str = (
        ""  # of "native" its instruction set; of "onnxruntime" on a CPU why the native engine does not
    )
    languages: tuple[Language, ...] = ()  # of a model of several; the two above are those of a request that names none

    @property
    def source_languages(self) -> list[str]:
        """BCP 47 languages of the texts that it takes."""
        return [one.code for one in self.languages if one.is_source] or [self.source_language]

    @property
    def target_languages(self) -> list[str]:
        """BCP 47 languages of its translations."""
        return [one.code for one in self.languages if one.is_target] or [self.target_language]


# What a caller asks for and gets who has translations already and wants to know what a model thinks of them.

MAX_SHOWN_TOKENS = 64  # of either side of a pair whose attention is shown; of more, nobody sees anything


class ScorePair(NamedTuple):
    """A text and a translation of it, each taken as one segment."""

    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRequest:
    """Pairs, and the model that is to judge them; see `TranslationRequest`."""

    pairs: Sequence[ScorePair]
    model: str | None = None
    source_language: str = ""
    target_language: str = ""
    priority: Priority | None = None
    return_alignments: bool = False
    return_heads: bool = False  # of sentences of at most `MAX_SHOWN_TOKENS`


class AttentionHeads(NamedTuple):
    """What each attention head looks at: `HeadWeights` with the tokens of both sides, end-of-sentence last, empty."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: HeadWeights


class ScoredToken(NamedTuple):
    """A token of a translation."""

    text: str  # the code points of the target that it covers, white space before a word included; "" for the end
    log_probability: float  # natural logarithm


@dataclass(frozen=True, slots=True, kw_only=True)
class PairScore:
    """What a model thinks of a pair, or an error of its own."""

    tokens: tuple[ScoredToken, ...] = ()  # end-of-sentence last
    links: tuple[Link, ...] = ()  # between words of source and target
    heads: AttentionHeads | None = None
    source_tokens: int = 0  # end-of-sentence included
    error: DragomanError | None = None

    @property
    def log_probability(self) -> float:
        """Sum of the tokens' log-probabilities."""
        return math.fsum(token.log_probability for token in self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreResult:
    """The answer to a `ScoreRequest`."""

    scores: Sequence[PairScore]  # in the order of the pairs
    model: str = ""
    model_version: str = ""
