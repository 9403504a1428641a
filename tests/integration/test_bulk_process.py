"""`dragoman bulk` against a real server, killed at moments that nobody chose, and inside a write."""

import signal
from pathlib import Path

from tests.fakes.bulk_runs import bulk, drafts, parts_done, parts_folder
from tests.fakes.own_text import numberless_sentences

PARTS = ("--part-size", "20")
WITHIN_S = 300.0


def write_source(file: Path, lines: int) -> Path:
    file.write_text("".join(f"{line}\n" for line in numberless_sentences(lines)))
    return file


def run_to_end(source: Path, output: Path, address: str) -> None:
    with bulk(source, output, address, *PARTS) as process:
        _, said = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 0, said


def test_killed_inside_a_write_a_part_is_not_there_and_is_made_again(server, tmp_path):
    source, output = write_source(tmp_path / "in.txt", 80), tmp_path / "out.txt"

    with bulk(source, output, server.address, *PARTS, killed_in_write=3) as process:
        process.communicate(timeout=WITHIN_S)
    num_parts, (draft,) = len(parts_done(output)), drafts(output)
    draft_bytes = draft.stat().st_size
    run_to_end(source, output, server.address)

    lines = source.read_text().splitlines(keepends=True)
    assert process.returncode == -signal.SIGKILL
    assert (num_parts, draft_bytes) == (2, len("".join(lines[40:60])) // 2)
    assert output.read_text() == "".join(lines)  # the echo runner's translation
    assert not parts_folder(output).exists()
