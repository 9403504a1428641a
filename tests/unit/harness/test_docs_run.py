"""What `make try-docs` takes from the documents, and what it says of them."""

import re

import pytest

from tests.docs_run.pages import DOCUMENTS, ROOT, Step, program_of, steps_in
from tests.docs_run.report import Outcome, summary
from tests.docs_run.rules import LEFT_OUT, REPLACED, reason_to_leave_out, runnable

pytestmark = pytest.mark.skipif(not (ROOT / "docs").exists(), reason="not in a checkout")

STEPS = [step.text for page in DOCUMENTS if page.exists() for step in steps_in(page.read_text(encoding="utf-8"))]
PAGE = """
Words.

    A=1 dragoman serve --host 0.0.0.0 \\
        --admin-port 50052     # off

    dragoman status

```python
from x import y
```

    [limits]

    max_texts = 64

Words.

    model/      what a model is
      layers.py

More words, and `dragoman models`.

    with y:
        pass
"""


def test_steps_of_a_page_come_in_order_and_trees_and_words_are_none():
    assert [*steps_in(PAGE)] == [
        Step("command", "A=1 dragoman serve --host 0.0.0.0      --admin-port 50052     # off"),
        Step("command", "dragoman status"),
        Step("python", "from x import y\n"),
        Step("settings", "[limits]\n\nmax_texts = 64"),
        Step("python", "from x import y\nwith y:\n    pass\n"),
    ]


def test_a_command_of_an_unknown_program_beside_known_ones_is_an_error():
    with pytest.raises(ValueError, match="dragon serve"):
        list(steps_in("    dragoman serve\n    dragon serve\n"))


@pytest.mark.parametrize(
    ("line", "program"),
    [
        (".venv/bin/dragoman doctor", "dragoman"),
        ("A=1 B=2 curl -s x", "curl"),
        ("DRAGOMAN_API_KEY=$(cat shop.key) dragoman translate x", "dragoman"),
    ],
)
def test_program_of_a_line_is_found_behind_variables_and_directories(line, program):
    assert program_of(line) == program


def test_every_rule_is_of_something_that_the_documents_have():
    text = "\n".join(STEPS)

    assert [pattern for pattern in LEFT_OUT if not re.search(pattern, text, re.MULTILINE)] == []
    assert [written for written in REPLACED if written not in text] == []


def test_most_steps_are_run():
    assert len(STEPS) > 100
    assert sum(not reason_to_leave_out(step) for step in STEPS) > 0.5 * len(STEPS)


def test_placeholders_become_what_runs():
    command = ".venv/bin/dragoman translate --server translate.example:50051 x"

    assert runnable(command, {"translate.example:50051": "here:1"}) == "dragoman translate --server here:1 x"


def test_summary_counts_what_is_typed_and_has_a_line_for_each_reason_and_each_failure():
    outcomes = [
        Outcome("a.md", "(servers)", "held", "serving", is_typed=False),
        Outcome("a.md", "one", "held", "done"),
        Outcome("a.md", "two", "not run", "a cluster"),
        Outcome("b.md", "three", "not run", "a GPU"),
        Outcome("b.md", "four", "not run", "a GPU"),
        Outcome("b.md", "five", "failed", "exit code 1"),
        Outcome("b.md", "(SIGTERM)", "failed", "ended with 1", is_typed=False),
    ]

    assert summary(outcomes) == [
        "5 commands and examples found, 2 run, 1 held, 3 not run:",
        "    2  a GPU",
        "    1  a cluster",
        "b.md: five: failed: exit code 1",
        "b.md: (SIGTERM): failed: ended with 1",
    ]


def test_a_step_may_print_what_is_no_text(tmp_path):
    pytest.importorskip("pyarrow", reason="the scene has a Parquet file")
    from tests.docs_run.scene import Scene, StepFailed

    scene = Scene(tmp_path)

    assert scene.run(Step("command", r"printf '\376'")).startswith("done")
    with pytest.raises(StepFailed, match="exit code 1: \ufffd"):
        scene.run(Step("command", r"printf '\376'; false"))
