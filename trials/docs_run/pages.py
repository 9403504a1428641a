"""What the documents tell a reader to type: the commands, Python and settings of their blocks, in order."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[2]
_PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "deploy/RUNBOOK.md")
DOCUMENTS = [ROOT / name for name in _PAGES] + sorted((ROOT / "docs").glob("*.md"))
_PROGRAMS = re.compile(
    r"cd|chown|curl|docker|dragoman|envoy|grpcurl|haproxy|helm|hf|install|kill|kubectl|make|mkdir|node|openssl|pip|"
    r"pre-commit|python3?|ray|serve|systemctl|umask|useradd|zcat"
)
# What is fenced, and what is indented by four spaces.
_BLOCK = re.compile(r"^```\w*\n((?s:.*?))^```$|(?:^    .*\n(?:\n+(?=    ))?)+", re.MULTILINE)
_VARIABLES = re.compile(r"(?:[A-Z_]+=(?:\$\([^)]*\)|\S*)\s+)*")


@dataclass(frozen=True, slots=True)
class Step:
    """Something to type; the Python of a page is one program that grows from block to block."""

    kind: Literal["command", "python", "settings"]
    text: str


def steps_in(text: str) -> Iterator[Step]:
    """The steps of a page; raises ValueError for a line of an unknown program beside others of known ones."""
    program = ""
    for found in _BLOCK.finditer(f"{text}\n"):
        block = (found[1] or re.sub(r"^    ", "", found[0], flags=re.MULTILINE)).strip("\n")
        if block.startswith("["):
            yield Step("settings", block)
        elif block.startswith(("from ", "import ", "with ")):
            program += f"{block}\n"
            yield Step("python", program)
        else:
            yield from (Step("command", line) for line in _commands(block))


def program_of(line: str) -> str:
    """Which program a command line starts, without its directory and the variables before it."""
    return _VARIABLES.sub("", line, count=1).split()[0].rpartition("/")[2]


def _commands(block: str) -> list[str]:
    """The command lines of a block, none where it is of another kind: a tree, a query."""
    lines = [line for line in block.replace("\\\n", " ").splitlines() if line.strip()]
    unknown = [line for line in lines if not _PROGRAMS.fullmatch(program_of(line))]
    if 0 < len(unknown) < len(lines):
        raise ValueError(f"no command of a program that is known: {unknown[0]}")
    return [] if unknown else lines
