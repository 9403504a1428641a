"""What `make try-docs` takes from the documents, and what it says of them."""

import re

import pytest

from trials.docs_run.pages import DOCUMENTS, ROOT, Step, steps_in
from trials.docs_run.rules import LEFT_OUT, REPLACED

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


def test_every_rule_is_of_something_that_the_documents_have():
    text = "\n".join(STEPS)

    assert [pattern for pattern in LEFT_OUT if not re.search(pattern, text, re.MULTILINE)] == []
    assert [written for written in REPLACED if written not in text] == []
