"""`python -m export import SOURCE BUNDLE`: a model of another framework becomes a bundle."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track

from export.golden import short_texts
from export.importers.argos import model_directory
from export.importers.checkpoint import model_type_of
from export.importers.ctranslate2 import is_ctranslate2, read_ctranslate2
from export.importers.foreign import ForeignModelError, ImportOptions
from export.importers.m2m100 import is_m2m100, read_m2m100
from export.importers.marian import is_marian, read_marian
from export.importers.marian_npz import is_marian_model, read_marian_model
from export.importers.opennmt_py import is_opennmt_py, read_opennmt_py
from export.importers.t5 import is_t5, read_t5
from export.onnx_export import ALL_PRECISIONS, ExportOptions, Samples, export_bundle
from export.report import show_bundle
from export.samples import prompt_texts, prompted_samples, read_samples
from export.source import ExportSource
from model.bundle import Bundle
from model.config import StopRule
from model.corpus import read_lines
from model.tokenizer import load_tokenizer


class Format(StrEnum):
    """Formats of foreign models."""

    AUTO = "auto"
    CTRANSLATE2 = "ctranslate2"
    MARIAN = "marian"
    MARIAN_NPZ = "marian-npz"  # also .bin
    OPENNMT_PY = "opennmt-py"
    M2M100 = "m2m100"  # also NLLB, mBART and mBART-50
    T5 = "t5"  # also mT5 and MADLAD


Fits = Callable[[Path], bool]
Reader = Callable[[Path, ImportOptions, Path], ExportSource]
_FORMATS: dict[Format, tuple[Fits, Reader]] = {  # in the order in which they are tried
    Format.CTRANSLATE2: (is_ctranslate2, read_ctranslate2),
    Format.MARIAN: (is_marian, read_marian),
    Format.M2M100: (is_m2m100, read_m2m100),
    Format.T5: (is_t5, read_t5),
    Format.MARIAN_NPZ: (is_marian_model, read_marian_model),
    Format.OPENNMT_PY: (is_opennmt_py, read_opennmt_py),
}

app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
console = Console(stderr=True)

EPILOG = """[bold]Examples[/bold]

CTranslate2: [cyan]python -m export import my-ct2-model bundles/en-de --source-language en --target-language de[/cyan]

Marian: [cyan]python -m export import my-marian-model bundles/en-de --source-language en --target-language de[/cyan]

OPUS-MT: [cyan]python -m export import opus-mt-en-de bundles/en-de[/cyan]

Argos: [cyan]python -m export import translate-en_de-1_0.argosmodel bundles/en-de[/cyan]

NLLB: [cyan]python -m export import nllb-200-distilled-600M bundles/nllb --target-language de[/cyan]

T5: [cyan]python -m export import t5-small bundles/t5 --source-language en --target-language de
--source-prefix 'translate English to German:'[/cyan]

int8: [cyan]python -m export import opus-mt-en-de bundles/en-de --precision int8 --calibration sentences.en[/cyan]
"""


@app.command(epilog=EPILOG)
def main(
    source: Annotated[Path, typer.Argument(help="The model's directory, or an Argos package.", exists=True)],
    bundle: Annotated[Path, typer.Argument(help="Where the bundle goes; a bundle there is replaced.")],
    kind: Annotated[Format, typer.Option("--format", help="Of SOURCE.")] = Format.AUTO,
    source_language: Annotated[str, typer.Option(help="Such as en; default: what the model says.")] = "",
    target_language: Annotated[str, typer.Option(help="Such as de; default: what the model says.")] = "",
    name: Annotated[str, typer.Option(help="Name of the model; default: the directory's.")] = "",
    version: Annotated[str, typer.Option(help="Version of the model; default: 1.")] = "",
    precision: Annotated[
        list[str] | None,
        typer.Option(
            help="int8, fp32, or fp16 for a GPU; may be repeated. Default: fp32, with --calibration also int8."
        ),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            help="Source sentences, one a line, plain or .gz, that int8 is calibrated with; the first short ones "
            "become the bundle's self-test. Default: built-in sentences in English, else tokens at random.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    source_pieces: Annotated[
        Path | None,
        typer.Option(help="SentencePiece model; default: the one beside the model.", exists=True, dir_okay=False),
    ] = None,
    target_pieces: Annotated[
        Path | None,
        typer.Option(help="SentencePiece model of the target, if it is another one.", exists=True, dir_okay=False),
    ] = None,
    vocabulary: Annotated[
        list[Path] | None,
        typer.Option(
            help="Vocabulary of a Marian model; given twice: of source and target. Default: those it names.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    source_prefix: Annotated[
        list[str] | None, typer.Option(help="Token before every source, such as '>>de<<', of T5 text; repeatable.")
    ] = None,
    source_eos: Annotated[
        bool | None, typer.Option(help="End every source with end-of-sentence. Default: as the model says.")
    ] = None,
    profile: Annotated[
        StopRule | None,
        typer.Option(help="Whose search to use, to compare with it. Default: that of the model's own framework."),
    ] = None,
    shortlist: Annotated[
        Path | None,
        typer.Option(
            help="Of `python -m model.tools.learn_shortlist`; default: a Marian model's own.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    language_last: Annotated[
        bool | None,
        typer.Option(
            "--language-last/--language-first",
            help="Where a source's language token stands, of NLLB and its kin. Default: as the model says, or first.",
        ),
    ] = None,
) -> None:
    """Turn a model of CTranslate2, Argos, Marian, OPUS-MT, OpenNMT-py, M2M100, NLLB, mBART or T5 into a BUNDLE.

    Nothing in SOURCE is run. What this program does not understand is refused, and BUNDLE stays as it was.
    """
    for given in precision or ():
        if given not in ALL_PRECISIONS:
            raise typer.BadParameter(f"{given!r} is none of {', '.join(ALL_PRECISIONS)}", param_hint="--precision")
    usual = ("int8", "fp32") if calibration else ("fp32",)
    options = ImportOptions(
        name=name,
        version=version,
        source_language=source_language,
        target_language=target_language,
        source_pieces=source_pieces,
        target_pieces=target_pieces,
        vocabularies=tuple(vocabulary or ()),
        source_prefix=tuple(source_prefix or ()),
        source_eos=source_eos,
        profile=profile,
        shortlist=shortlist,
        language_last=language_last,
    )
    try:
        precisions = tuple(dict.fromkeys(precision or usual))
        show_bundle(import_model(source, bundle, options, kind, precisions, calibration), console)
    except (ValueError, OSError) as error:
        console.print(f"[red]error:[/red] {error}", highlight=False, soft_wrap=True)
        raise typer.Exit(1) from error


def import_model(
    source: Path,
    destination: Path,
    options: ImportOptions,
    kind: Format = Format.AUTO,
    precisions: tuple[str, ...] = ("fp32",),
    calibration: Path | None = None,
) -> Bundle:
    """Write the bundle of a foreign model and return it.

    The bundle does not keep weights beside its graphs: half precision would not be the model's, and SOURCE has them.

    Raises:
        ForeignModelError, ParityError, BundleError: as described there.
    """
    with tempfile.TemporaryDirectory() as scratch, model_directory(source, destination.parent) as directory:
        model = _reader(directory, kind)(directory, options, Path(scratch))
        if options.profile is not None:
            model = replace(model, decoding=replace(model.decoding, stop_rule=options.profile))
        languages = model.source_language, model.target_language
        tokenizer = load_tokenizer(model.tokenizer_path, model.tokenizer).between(*languages)
        samples, texts = Samples(), list(prompt_texts(model))
        if calibration is not None:
            samples, texts = read_samples(calibration, tokenizer, model.config), read_lines(calibration)
        elif "int8" in precisions:
            samples = prompted_samples(model, tokenizer)
        model = replace(model, golden_texts=tuple(short_texts(tokenizer, texts)))
        progress = partial(track, console=console, transient=True)
        exported = ExportOptions(
            precisions=precisions, keep_weights=False, shortlist=options.shortlist or model.shortlist_path
        )
        return export_bundle(model, destination, exported, samples, progress)


def _reader(source: Path, kind: Format) -> Reader:
    if kind is not Format.AUTO:
        return _FORMATS[kind][1]
    for fits, reader in _FORMATS.values():
        if fits(source):
            return reader
    model_type = model_type_of(source)
    raise ForeignModelError(
        f"{source} has neither model.bin (CTranslate2), nor an .npz or model*.bin file (Marian), "
        "nor a .pt file (OpenNMT-py), nor a config.json with model_type marian (MarianMT), m2m_100 (M2M100, NLLB), "
        "mbart, t5 (MADLAD) or mt5" + (f"; it is {model_type[:60]!r}" if model_type else "")
    )
