"""Word alignment against a slow twin, and the shortlist that is chosen from it."""

import gzip
import random
from collections import defaultdict
from pathlib import Path

import pytest
from typer.testing import CliRunner

import model.tools.learn_shortlist
from model.bundle import Bundle, default_bundle_dir
from model.shortlist import Shortlist
from model.tools.learn_shortlist import Links
from tests.conftest import ENGLISH, GERMAN

V = 30


def untracked(items, description):
    return items


def random_pairs(count: int, seed: int = 4) -> list[tuple[list[int], list[int]]]:
    rng = random.Random(seed)
    lengths = [(rng.randint(1, 6), rng.randint(1, 6)) for _ in range(count)]
    return [([rng.randrange(4, V) for _ in range(s)], [rng.randrange(4, V) for _ in range(t)]) for s, t in lengths]


def slow_model_1(pairs: list[tuple[list[int], list[int]]], iterations: int) -> dict[tuple[int, int], float]:
    """The textbook's loops: p[source, target]."""
    p: dict[tuple[int, int], float] = defaultdict(lambda: 1.0)
    for _ in range(iterations):
        counts: dict[tuple[int, int], float] = defaultdict(float)
        totals: dict[int, float] = defaultdict(float)
        for source, target in pairs:
            for t in target:
                norm = sum(p[s, t] for s in source)
                for s in source:
                    counts[s, t] += p[s, t] / norm
                    totals[s] += p[s, t] / norm
        p = {(s, t): count / totals[s] for (s, t), count in counts.items()}
    return p


@pytest.mark.parametrize("chunk_links", [40, 1_000_000])
@pytest.mark.parametrize("iterations", [1, 4])
def test_probabilities_are_those_of_the_textbook(monkeypatch, chunk_links, iterations):
    monkeypatch.setattr(model.tools.learn_shortlist, "_CHUNK_LINKS", chunk_links)
    pairs = random_pairs(60)

    links = Links.of(pairs, V, untracked)
    found = links.translation_probabilities(iterations, untracked)

    expected = slow_model_1(pairs, iterations)
    assert (len(links.chunks) > 10) == (chunk_links == 40)
    assert [*zip(links.sources.tolist(), links.targets.tolist(), strict=True)] == sorted(expected)
    assert found == pytest.approx([expected[couple] for couple in sorted(expected)])


def write(path: Path, lines: tuple[str, ...]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    return path


def test_the_command_learns_from_files_and_from_a_recipe(tmp_path):
    sides = [
        write(tmp_path / "train" / "own" / f"own.{language}.gz", lines)
        for language, lines in (("en", ENGLISH), ("de", GERMAN))
    ]
    recipe = tmp_path / "own.toml"
    recipe.write_text('name = "own"\nlanguages = {source = "en", target = "de"}\ncorpora = [{name = "own"}]\n')
    files, corpora = ("--source", sides[0], "--target", sides[1]), ("--data", tmp_path, "--recipe", recipe)

    for number, options in enumerate((files, corpora)):
        out = tmp_path / f"{number}.csr"
        assert run(default_bundle_dir(), out, *options, "--candidates", 2, "--always", 5)[0] == 0
        found = Shortlist.load(out, Bundle.load(default_bundle_dir()).manifest.config.vocab_size)
        assert 0 < found.offsets[-1] <= found.vocab_size * (1 + 2)


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(model.tools.learn_shortlist.app, [str(argument) for argument in arguments])
    return result.exit_code, " ".join(result.output.replace("│", "").split())
