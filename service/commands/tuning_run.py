"""What `dragoman tune` does: sentences in, measured settings as a table, the best one as a configuration file.

Knows no option parsing; raises, where `tune_command.py` prints and exits.
"""

import asyncio
import json
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from model.bundle import Bundle, default_bundle_dir, included_bundle_dirs
from service.commands.lines import from_bytes
from service.commands.tuning import Tuner
from service.commands.tuning_choice import MAX_LATENCY_RATIO, Measurement, Preference, Sample, Setting, choose
from service.config import EngineConfig, LimitsConfig, ServerConfig
from service.errors import InvalidInput, Unavailable
from service.models.bundle_check import load_tokenizer
from service.models.codec import TextCodec
from service.models.model_info import describe
from service.models.search_options import search_params
from service.telemetry.logs import configure_logging
from service.threads import available_threads
from service.translation import ModelInfo, TranslateOptions

_MAX_SENTENCES = 1_000  # of the owner's file, chosen at random; more than a run translates
_SEED = 1
_WIDE_SPREAD = 0.25  # turns of one setting that differ by more were disturbed
_TABLE_WIDTH = 100
_CAPTION = "p50, p95: one sentence at a time; all else with every engine busy; +-: half of the turns' range"

# Of our own, for those who give no file: what people send to a translator, 1 to 45 words.
SENTENCES = (
    "Thank you!",
    "Where is the exit?",
    "I will call you back tomorrow.",
    "Please close the window before you leave.",
    "The meeting has been moved to Thursday afternoon.",
    "How much does a ticket to the city centre cost?",
    "We could not find your order, but we are still looking for it.",
    "My grandmother grew up on a small farm near the lake.",
    "The museum is open every day except Monday from ten to six.",
    "Nobody in the office knew who had sent the flowers.",
    "If it rains on Saturday, we will have the party inside.",
    "The new bridge was built in less than two years.",
    "You can return the shoes within thirty days if you have kept the receipt.",
    "She put the letter into a drawer and never spoke about it again.",
    "The battery should be charged completely before the first use.",
    "He asked me whether I had ever been to the mountains in winter.",
    "Because of the strong wind, the ferry to the island does not run today.",
    "Add the butter and the sugar, and stir until the mixture is smooth.",
    "After a long discussion the council decided to plant two hundred trees along the main road.",
    "The patient should drink plenty of water and stay in bed for at least three days.",
    "Although the train was almost an hour late, most of the passengers remained friendly and patient.",
    "Your password must have at least twelve characters and should not contain your name.",
    "The company sells its products in more than forty countries and employs about nine thousand people.",
    "When the lights went out, the children lit candles and told each other stories until they fell asleep.",
    "The rent includes heating and water, but electricity and internet have to be paid by the tenant.",
    "To change the language of the display, open the settings, choose the second entry, and press the green button.",
    (
        "Scientists have discovered that the birds return to the same tree every spring, even after a journey of "
        "several thousand kilometres."
    ),
    (
        "The author describes the life of a fisherman who, after losing his boat in a storm, tries to begin again in a "
        "town where nobody knows him."
    ),
    (
        "Before you connect the machine to the power supply, make sure that the cable is not damaged and that the "
        "voltage on the label is the same as in your building."
    ),
    "Good evening, ladies and gentlemen!",
    "No, not today.",
    "It is warmer here than in the kitchen.",
    "The dog barked all night, so the neighbours complained to the owner the next morning.",
    "Most of the students walk to school or take the bus.",
    "I would like to reserve a table for four people at half past seven.",
    "The price of bread has risen again.",
    "They have known each other since they were children.",
    "Turn left at the second traffic light, go past the church, and you will see the hotel on the right.",
    (
        "The results of the study, which were published last week, show that people who sleep well remember new words "
        "better than those who stay awake until late at night, and that a short rest after lunch has a similar effect."
    ),
    "What would you do if you had more time?",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneCommand:
    """Everything `dragoman tune` can be told."""

    config: ServerConfig  # which model, and what else the server is told; the engines' number and size are measured
    texts: Path | None = None  # None: our own sentences
    beam_size: int | None = None  # None: the model's
    seconds: float
    prefer: str = Preference.BALANCE
    output: Path
    is_forced: bool = False  # an existing output is replaced
    shows_progress: bool | None = None  # None: on a terminal

    def __post_init__(self) -> None:
        if self.prefer not in list(Preference):
            raise ValueError(f"--prefer is {self.prefer!r}, it must be one of {', '.join(Preference)}")
        if self.output.exists() and not self.is_forced:
            raise ValueError(f"{self.output} exists: --force replaces it, --output writes elsewhere")
        if not self.output.parent.is_dir():
            raise ValueError(f"{self.output} cannot be written: there is no directory {self.output.parent}")


def run(command: TuneCommand) -> None:
    """Measure, print the table, write the configuration and say how to use it.

    Raises:
        ValueError, OSError: the bundle, the sentences or the output cannot be used.
        DragomanError: no setting could be measured.
    """
    configure_logging(command.config.telemetry)
    bundle = Bundle.load(_bundle_dir(command))
    bundle.variant(command.config.engine.precision)  # raises if there is none
    config = command.config
    info = describe(bundle, config.engine.precision, max_beam_size=config.limits.max_beam_size)
    params = search_params(info, TranslateOptions(beam_size=command.beam_size))
    sample = Sample(_sources(command, bundle, info), params)
    preference = Preference(command.prefer)
    measured = _measure(command, sample, preference)
    best = _best(measured, preference, command.seconds)
    about = f"{info.name} {info.version}, {info.precision}, beam {params.beam_size}, {available_threads()} CPUs"
    print_report(measured, best, sample, about)
    for note in _notes(command, measured, best, info):
        print(note)
    text = configuration(best, sample, command.config.engine, origin=_origin(about, preference))
    command.output.write_text(text, encoding="utf-8")
    print(f"\nchosen: {best.setting} ({_why(preference)})")
    print(f"wrote {command.output}; serve with it: dragoman serve --config {command.output}")


def configuration(best: Measurement, sample: Sample, engine: EngineConfig, *, origin: str) -> str:
    """The file that `dragoman serve --config` reads.

    Args:
        engine: names the bundle and the precision, which are written where they are set.
        origin: one line on where the figures come from.
    """
    lines = [f"# {origin}", f"# {_figures(best, sample)}", "", "[engine]"]
    if engine.bundle is not None:
        lines.append(f"bundle = {json.dumps(str(engine.bundle.resolve()), ensure_ascii=False)}")
    if engine.precision is not None:
        lines.append(f'precision = "{engine.precision}"')
    setting = best.setting
    lines += [
        f"num_engines = {setting.num_engines}  # of each model that is served; one was measured",
        f"threads = {setting.threads}  # per engine",
        f"max_rows = {setting.max_rows}  # live hypotheses per engine",
    ]
    return "\n".join(lines) + "\n"


def print_report(measured: Iterable[Measurement], best: Measurement, sample: Sample, about: str) -> None:
    """All settings as a table; the best one is marked."""
    numbers = ("engines", "threads", "max rows", "sentences/s", "+-", "tokens/s", "p50 ms", "p95 ms", "MB", "turns")
    table = Table(title=about, title_justify="left", caption=_CAPTION, caption_justify="left")
    table.add_column("")
    for name in numbers:
        table.add_column(name, justify="right")
    for each in measured:
        style = "bold" if each is best else None
        table.add_row("*" if each is best else "", *_cells(each, sample), style=style)
    Console(width=_TABLE_WIDTH).print(table)


def _cells(measurement: Measurement, sample: Sample) -> list[str]:
    setting = measurement.setting
    head = [str(setting.num_engines), str(setting.threads), str(setting.max_rows)]
    if not measurement.turns:
        return [*head, "-", "-", "-", "-", "-", "-", "0"]
    per_s = measurement.rows_per_s / sample.rows_per_sentence
    return [
        *head,
        f"{per_s:.1f}",
        f"{50 * measurement.spread:.0f} %",
        f"{per_s * sample.tokens_per_sentence:,.0f}",
        f"{1e3 * measurement.latency_p50_s:.1f}",
        f"{1e3 * measurement.latency_p95_s:.1f}",
        f"{measurement.memory_bytes / 1e6:.0f}",
        str(len(measurement.turns)),
    ]


def _figures(measurement: Measurement, sample: Sample) -> str:
    per_s = measurement.rows_per_s / sample.rows_per_sentence
    latency = f"a sentence alone takes {1e3 * measurement.latency_p50_s:.1f} ms (median)"
    return f"{per_s:.1f} sentences/s; {latency}; the engines hold {measurement.memory_bytes / 1e6:.0f} MB"


def _bundle_dir(command: TuneCommand) -> Path:
    """One model is measured; what suits it goes for the other included ones as well."""
    return command.config.engine.bundle or default_bundle_dir()


def _sources(command: TuneCommand, bundle: Bundle, info: ModelInfo) -> list[tuple[int, ...]]:
    """Source ids of the sentences to measure with, in random order.

    Raises:
        ValueError, OSError: the file cannot be read, or holds no text that the model takes.
    """
    limit = LimitsConfig().max_characters
    codec = TextCodec(load_tokenizer(bundle), max_characters=limit, max_source_tokens=info.max_source_tokens)
    texts = SENTENCES if command.texts is None else _read(command.texts)
    shuffled = random.Random(_SEED).sample(texts, len(texts))
    sources = list(_encoded(shuffled[:_MAX_SENTENCES], codec))
    if not sources:
        raise ValueError(f"{command.texts} has no text that the model takes: one sentence a line is expected")
    return sources


def _read(file: Path) -> list[str]:
    with file.open("rb") as stream:
        return [line.text for line in from_bytes(stream) if line.text.strip()]


def _encoded(texts: Iterable[str], codec: TextCodec) -> Iterator[tuple[int, ...]]:
    for index, text in enumerate(texts):
        try:
            ids = codec.encode(text, index)
        except InvalidInput:  # the server would refuse it too
            continue
        if ids:
            yield tuple(ids)


def _measure(command: TuneCommand, sample: Sample, preference: Preference) -> list[Measurement]:
    with _progress(command) as on_turn:
        tuner = Tuner(
            _bundle_dir(command),
            command.config.engine,
            sample,
            start_timeout_s=command.config.lifecycle.start_timeout_s,
            on_turn=on_turn,
        )
        return asyncio.run(tuner.run(command.seconds, preference))


def _best(measured: Sequence[Measurement], preference: Preference, seconds: float) -> Measurement:
    if any(each.is_usable for each in measured):
        return choose(measured, preference)
    reasons = [each.failure for each in measured if each.failure]
    raise Unavailable(reasons[0] if reasons else f"nothing could be measured within {seconds:g} s; give more --seconds")


@contextmanager
def _progress(command: TuneCommand) -> Iterator[Callable[[Setting], None]]:
    """A function to call when a turn begins; the bar, on standard error, shows the time."""
    shows_progress = sys.stderr.isatty() if command.shows_progress is None else command.shows_progress
    columns = (BarColumn(), TextColumn("{task.completed:.0f}/{task.total:.0f} s"), TextColumn("{task.description}"))
    began = time.monotonic()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not shows_progress) as bar:
        task = bar.add_task("starting", total=command.seconds)
        yield lambda setting: bar.update(task, completed=time.monotonic() - began, description=str(setting))


def _notes(command: TuneCommand, measured: Iterable[Measurement], best: Measurement, info: ModelInfo) -> Iterator[str]:
    """What the reader should know about these figures."""
    for each in measured:
        if each.failure:
            yield f"not usable: {each.setting}: {each.failure}"
    if command.texts is None:
        language = "" if info.source_language.lower().startswith("en") else f", not {info.source_language}"
        yield f"measured with English sentences of our own{language}; --texts FILE measures with yours"
    if command.config.engine.bundle is None and len(included_bundle_dirs()) > 1:
        yield f"measured with {info.name} alone; every model that is served gets as many engines"
    if best.spread > _WIDE_SPREAD:
        yield "the turns differ much: the machine has other work, or is shared; repeat when it is quiet"


def _why(preference: Preference) -> str:
    return {
        Preference.BALANCE: f"the highest throughput with a latency within {MAX_LATENCY_RATIO:g} x the best",
        Preference.LATENCY: "the lowest latency, and of those the highest throughput",
        Preference.THROUGHPUT: "the highest throughput",
    }[preference]


def _origin(about: str, preference: Preference) -> str:
    made = f"dragoman tune, {datetime.now(UTC):%Y-%m-%d}"
    return f"{made}: {_why(preference)}; measured: {about}"
