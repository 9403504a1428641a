"""The documents name commands, options, settings, targets and files that exist.

Command lines are parsed as the command line parses them, and not run.
"""

import re
import shlex
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.main import get_command

from service.cli.app import app
from service.config import ENV_PREFIX, setting_sources
from service.telemetry.metrics import Metrics

ROOT = Path(__file__).resolve().parents[2]
NAMES = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "deploy/RUNBOOK.md"]
DOCUMENTS = [ROOT / name for name in NAMES] + sorted((ROOT / "docs").rglob("*.md"))
COMMANDS: Any = get_command(app)  # typer's types say nothing of groups
SETTINGS = set(setting_sources())
VARIABLES = {f"{ENV_PREFIX}{name}".upper().replace(".", "__") for name in SETTINGS}
METRICS = {definition.name.removesuffix("_total") for definition in Metrics().families}
ELLIPSIS = "..."  # "and whatever else you like"

pytestmark = pytest.mark.skipif(not (ROOT / "docs").exists(), reason="not in a checkout")


class Line(NamedTuple):
    """A command line of a document."""

    where: str
    words: list[str]
    whole: bool  # stands in a block, to be typed as it is; in a sentence, arguments may be left out


def blocks(text: str) -> Iterator[str]:
    """What is fenced, and what is indented by four spaces."""
    fenced = re.findall(r"^```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    plain = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return iter([*fenced, "\n".join(re.findall(r"^    (\S.*|    .*)$", plain, re.MULTILINE))])


def spans(text: str) -> list[str]:
    """What stands in backquotes within a line."""
    return re.findall(r"`([^`\n]+)`", text)


def lines_of(document: Path) -> Iterator[Line]:
    text = document.read_text(encoding="utf-8")
    pieces = [(line, True) for block in blocks(text) for line in block.replace("\\\n", " ").splitlines()]
    pieces += [(span, False) for span in spans(text)]
    for piece, whole in pieces:
        for words in commands_in(piece):
            yield Line(f"{document.name}: {piece.strip()}", words, whole)


def commands_in(line: str) -> Iterator[list[str]]:
    """Each command of a pipeline or list, without variables before it and files it reads or writes."""
    lexer = shlex.shlex(re.sub(r"\$\([^)]*\)", "OUTPUT", line), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        tokens = list(lexer)
    except ValueError:  # an apostrophe in what is no command line
        assert not line.startswith(("dragoman ", "make ", "python")), line
        return
    command: list[str] = []
    for token in [*tokens, ";"]:
        if token in {"&&", "||", "|", ";", "&"}:
            yield from stripped(command)
            command = []
        else:
            command.append(token)


def stripped(command: list[str]) -> Iterator[list[str]]:
    ends = [index for index, word in enumerate(command) if word in {"<", ">", ">>", "2>"}]
    words = command[: ends[0]] if ends else command
    while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
        words = words[1:]
    if words:
        yield [Path(words[0]).name, *words[1:]]  # .venv/bin/dragoman is dragoman


LINES = [line for document in DOCUMENTS if document.exists() for line in lines_of(document)]


def of(program: str) -> list[Line]:
    return [line for line in LINES if line.words[0] == program and len(line.words) > 1]


def complaint_about(line: Line) -> str:
    """What the command line says to these words; empty where it takes them."""
    command, words = COMMANDS, [word for word in line.words[1:] if word != ELLIPSIS]
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        name = words.pop(0)
        command = command.get_command(None, name)
        if command is None:
            return f"{line.where}: there is no command {name}"
    try:
        command.make_context(command.name, list(words))
    except Exception as error:  # noqa: BLE001 - typer has its own tree of them, which it does not show
        left_out = type(error).__name__ in {"MissingParameter", "NoArgsIsHelpError"} and not line.whole
        is_help = type(error).__name__ == "Exit"
        return "" if left_out or is_help else f"{line.where}: {error}"
    set_by_words = {word.partition("=")[0] for before, word in pairwise(words) if before == "--set"}
    unknown = set_by_words - SETTINGS - {"GROUP.NAME"}
    return f"{line.where}: there is no setting {unknown}" if unknown else ""


def test_every_command_line_of_dragoman_is_one_that_it_takes():
    assert len(of("dragoman")) > 50  # a parser that finds none would be content
    assert [said for line in of("dragoman") if (said := complaint_about(line))] == []


def test_every_target_and_variable_of_make_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    known = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    variables = set(re.findall(r"^([A-Z_]+) \?=", makefile, re.MULTILINE)) | {"IMAGE_ARGS"}
    words = [(line.where, word) for line in of("make") for word in line.words[1:] if word != ELLIPSIS]

    assert len(words) > 15
    for where, word in words:
        name, equals, _ = word.partition("=")
        assert name in (variables if equals else known | {"TARGET"}), where


def test_every_setting_variable_extra_metric_and_link_of_a_document_exists():
    groups = "|".join(sorted({name.partition(".")[0] for name in SETTINGS}))
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        named = re.findall(rf"(?<![\w./])(?:{groups})\.[a-z_]+(?![\w./])", " ".join(spans(text)))
        links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if ":" not in link]
        extras = re.findall(r"(?:dragoman|\.)\[([a-z,]+)\]", text)
        metrics = re.findall(r"(?<![\w/])dragoman_(?!client)[a-z0-9_]+(?!\w|\.\w)", text)

        assert set(named) - SETTINGS == set(), document
        assert set(re.findall(r"DRAGOMAN_[A-Z]+__\w+", text)) - VARIABLES == set(), document
        assert {name for extra in extras for name in extra.split(",")} - known_extras() == set(), document
        assert {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in metrics} - METRICS == set(), document
        assert [link for link in links if link and not (document.parent / link).exists()] == [], document


def known_extras() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return set(project["optional-dependencies"])


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")

    assert [page.name for page in (ROOT / "docs").glob("*.md") if f"]({page.name})" not in index] == ["README.md"]


def test_every_file_that_a_document_names_exists():
    tops = "service|model|export|protos|tests|bench|trials|deploy"
    for document in DOCUMENTS:
        words = " ".join(spans(document.read_text(encoding="utf-8"))).split()
        named = [word for word in words if re.fullmatch(rf"({tops})/[\w./-]+", word)]

        assert [name for name in named if not (ROOT / name).exists()] == [], document
