"""Options of a command that say how to search; `protos/translation.proto` has the meanings and the ranges."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any

import typer

from model.manifest import LENGTH_PENALTY_RANGE, MAX_BEAM_SIZE, PATIENCE_RANGE
from service.cli.options import ranged
from service.ranges import Range
from service.records import TranslateOptions
from service.registry.decoding_options import RANGES


def _of_contract(name: str, unit: str = "") -> Range:
    least, most = RANGES[name]
    return Range(least=least, most=most, unit=unit, is_whole=isinstance(least, int))


BEAM = Range(least=1, most=MAX_BEAM_SIZE)  # a server's own limit may be lower, and says so
_TOKENS = Range(least=1, most=100_000, unit="tokens")
_LEAST_TOKENS = Range(least=0, most=100_000, unit="tokens")
_PENALTY, _PATIENCE = (
    Range(least=least, most=most, is_whole=False) for least, most in (LENGTH_PENALTY_RANGE, PATIENCE_RANGE)
)

Suppressed = Annotated[
    list[str], typer.Option("--suppress", metavar="PHRASE", help="Keep it out of translations; may be repeated.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """What the command line says about the search; None takes the model's default."""

    beam_size: Annotated[int | None, ranged(BEAM, "--beam-size", "-b", help="1 is greedy search.")] = None
    num_hypotheses: Annotated[int | None, ranged(BEAM, "--num-hypotheses", "-n", help="Translations per text.")] = None
    alternatives: Annotated[
        bool | None, typer.Option("--alternatives", help="With -n: translations that begin differently.")
    ] = None
    length_penalty: Annotated[float | None, ranged(_PENALTY, help="0 prefers short translations.")] = None
    patience: Annotated[float | None, ranged(_PATIENCE, help="More than 1 searches longer.")] = None
    max_target_tokens: Annotated[int | None, ranged(_TOKENS, help="Longest translation in tokens.")] = None
    min_target_tokens: Annotated[int | None, ranged(_LEAST_TOKENS, help="Shortest translation in tokens.")] = None
    repetition_penalty: Annotated[
        float | None, ranged(_of_contract("repetition_penalty"), help="More than 1 avoids tokens that came before.")
    ] = None
    no_repeat_ngram: Annotated[
        int | None, ranged(_of_contract("no_repeat_ngram_size"), help="No sequence of N tokens comes twice.")
    ] = None
    suppress: Suppressed = field(default_factory=list)
    top_k: Annotated[
        int | None,
        ranged(_of_contract("sampling_top_k"), help="Draw each token among this many best ones, with a beam of 1."),
    ] = None
    top_p: Annotated[
        float | None,
        ranged(
            _of_contract("sampling_top_p"), help="With --top-k: among the likeliest whose probabilities sum up to this."
        ),
    ] = None
    temperature: Annotated[
        float | None, ranged(_of_contract("sampling_temperature"), help="With --top-k: more than 1 draws bolder.")
    ] = None
    seed: Annotated[
        int | None, ranged(_of_contract("sampling_seed"), help="With --top-k: the same number draws the same again.")
    ] = None
    shortlist: Annotated[
        bool | None, typer.Option("--shortlist", help="Only target tokens that the model's shortlist names: faster.")
    ] = None
    keep_repetition: Annotated[
        bool, typer.Option("--keep-repetition", help="Go on with a translation that only repeats itself.")
    ] = False

    def for_request(self) -> TranslateOptions:
        """Return the options of a request; tokens are drawn with a beam of 1 unless another one is asked for."""
        return TranslateOptions(
            beam_size=1 if self.top_k and self.beam_size is None else self.beam_size,
            num_hypotheses=self.num_hypotheses,
            length_penalty=self.length_penalty,
            patience=self.patience,
            max_target_tokens=self.max_target_tokens,
            use_shortlist=self.shortlist,
            repetition_penalty=self.repetition_penalty,
            no_repeat_ngram_size=self.no_repeat_ngram,
            min_target_tokens=self.min_target_tokens,
            suppressed_phrases=tuple(self.suppress),
            sampling_top_k=self.top_k,
            sampling_top_p=self.top_p,
            sampling_temperature=self.temperature,
            sampling_seed=self.seed,
            return_alternatives=self.alternatives,
            stop_repetition=False if self.keep_repetition else None,
        )


MODEL_DEFAULTS = SearchOptions()


def with_search(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a search in place of its parameter `search`."""

    @wraps(command)
    def with_options(*args: Any, **values: Any) -> None:
        search = {each.name: values.pop(each.name) for each in fields(SearchOptions)}
        command(*args, search=SearchOptions(**search), **values)

    own = signature(command, eval_str=True)
    parameters: list[Parameter] = []
    for parameter in own.parameters.values():
        options = signature(SearchOptions).parameters.values() if parameter.name == "search" else [parameter]
        parameters += [option.replace(default=[]) if option.name == "suppress" else option for option in options]
    vars(with_options)["__signature__"] = own.replace(parameters=_keywords_last(parameters))
    return with_options


def _keywords_last(parameters: list[Parameter]) -> list[Parameter]:
    """Return the parameters, of which only the first can be given without its name."""
    return [parameters[0], *(parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in parameters[1:])]
