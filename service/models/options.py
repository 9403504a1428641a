"""The options of a request that change logits or candidates (`engine/logits.py`): ranges and combinations.

Knows options and parameters; no model but what its graphs can do.
"""

from collections.abc import Callable, Sequence

from model.spelling import Spellings
from service.engine.wire import SearchParams
from service.errors import InvalidInput
from service.records import TranslateOptions

MAX_SUPPRESSED_PHRASES = 64
MAX_PHRASE_CHARACTERS = 200
MAX_SAMPLING_TOP_K = 1_000
RANGES: dict[str, tuple[float, float]] = {  # both ends included; translation.proto says the same
    "repetition_penalty": (1.0, 10.0),
    "no_repeat_ngram_size": (0, 32),
    "sampling_top_k": (0, MAX_SAMPLING_TOP_K),
    "sampling_top_p": (0.0, 1.0),
    "sampling_temperature": (0.05, 5.0),
    "sampling_seed": (0, (1 << 64) - 1),
}
_OF_SAMPLING = ("sampling_top_p", "sampling_temperature", "sampling_seed")
_NAMES = (*RANGES, "min_target_tokens", "return_alternatives")

Spell = Callable[[Sequence[str]], Spellings]


def with_decoding_options(
    params: SearchParams, options: TranslateOptions, *, takes_penalty: bool, spell: Spell
) -> SearchParams:
    """Return the parameters with these options of the request.

    Args:
        params: with the options that every search has.
        options: of the request; absent ones change nothing.
        takes_penalty: whether the model's graphs take what `repetition_penalty` needs.
        spell: returns the ways in which the model's tokens spell phrases.

    Raises:
        InvalidInput: names the option, its value, and the range or what does not fit.
    """
    given = {name: value for name in _NAMES if (value := getattr(options, name)) is not None}
    if not given and not options.suppressed_phrases:
        return params
    for name, (low, high) in RANGES.items():
        if name in given:
            check_range(name, given[name], low, high)
    check_range("min_target_tokens", given.get("min_target_tokens", 0), 0, params.max_target_tokens - 1)
    params = params._replace(**given)
    if params.repetition_penalty != 1.0 and not takes_penalty:
        raise _refused(
            "repetition_penalty", params, "the model was exported before its graphs took one: export it again"
        )
    if params.sampling_top_k:
        _check_sampling(params)
    else:
        for name in _OF_SAMPLING:
            if name in given:
                raise _refused(name, params, f"nothing is drawn without sampling_top_k, up to {MAX_SAMPLING_TOP_K:,}")
    if options.suppressed_phrases:
        return params._replace(suppressed=spell(_checked(options.suppressed_phrases)))
    return params


def check_range(option: str, value: float, low: float, high: float) -> None:
    """Raise InvalidInput if the value of an option is outside its range, both ends included."""
    if not low <= value <= high:  # also refuses NaN
        given = value if isinstance(value, int) else f"{value:g}"
        raise InvalidInput(f"options.{option} is {given}, from {low} to {high} is accepted", field=f"options.{option}")


def _check_sampling(params: SearchParams) -> None:
    if params.beam_size != 1:
        raise _refused("sampling_top_k", params, f"beam_size is {params.beam_size}: tokens are drawn with beam_size 1")
    if params.return_alternatives:
        raise _refused("sampling_top_k", params, "return_alternatives is true: alternatives are searched, not drawn")
    if params.sampling_top_p == 0.0:
        raise _refused("sampling_top_p", params, "more than 0 is accepted")


def _checked(phrases: Sequence[str]) -> Sequence[str]:
    field = "options.suppressed_phrases"
    if len(phrases) > MAX_SUPPRESSED_PHRASES:
        message = f"{field} has {len(phrases)} phrases, at most {MAX_SUPPRESSED_PHRASES} are accepted"
        raise InvalidInput(message, field=field)
    for index, phrase in enumerate(phrases):
        if not 0 < len(phrase.strip()) <= len(phrase) <= MAX_PHRASE_CHARACTERS:
            length = "is blank" if not phrase.strip() else f"has {len(phrase)} characters"
            message = f"{field}[{index}] {length}, from 1 to {MAX_PHRASE_CHARACTERS} characters are accepted"
            raise InvalidInput(message, field=f"{field}[{index}]")
    return phrases


def _refused(option: str, params: SearchParams, reason: str) -> InvalidInput:
    value = getattr(params, option)
    given = value if isinstance(value, int) else f"{value:g}"
    return InvalidInput(f"options.{option} is {given}, and {reason}", field=f"options.{option}")
