"""The command line as a user meets it, in this process."""

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from service.cli.app import app
from service.engine.wire import FinishReason
from service.local import LocalTranslator
from service.models.codec import untranslated
from service.records import TranslatedText, TranslateOptions, Translation, TranslationRequest
from tests.fakes.model_info import model_info
from tests.fakes.scripted_server import ScriptedServer


def run(*arguments: str, stdin: str | bytes | None = None, env: dict[str, str | None] | None = None) -> Result:
    """What `dragoman` does with these words; no server is named by the environment unless `env` does."""
    return CliRunner().invoke(app, arguments, input=stdin, env={"DRAGOMAN_SERVER": None, **(env or {})})


async def run_against(server: ScriptedServer, *arguments: str, stdin: str | bytes | None = None) -> Result:
    """The same with the address of a server."""
    return await asyncio.to_thread(run, *arguments, "--server", server.address, stdin=stdin)


class Mirror:
    """Stands for the in-process translator: words backwards."""

    def __init__(self) -> None:
        self.opened: dict[str, Any] = {}
        self.options: TranslateOptions | None = None
        self.request: TranslationRequest | None = None
        self.info = model_info()

    def open(self, directory: Path, **arguments: Any) -> "Mirror":
        self.opened = {"directory": directory, **arguments}
        return self

    def require(self, **names: str | None) -> None:
        self.opened |= names

    def translate_all(
        self, texts: Iterable[str], options: TranslateOptions, *, request: TranslationRequest | None = None
    ) -> Iterator[Translation]:
        self.options, self.request = options, request
        for text in texts:
            hypothesis = TranslatedText(
                text=text[::-1], score=-1.0, finish_reason=FinishReason.END_OF_SENTENCE, target_tokens=1
            )
            yield Translation(hypotheses=(hypothesis,)) if text.strip() else Translation(hypotheses=(untranslated(""),))


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Mirror:
    """In the place of every translator in this process."""
    fake = Mirror()
    monkeypatch.setattr(LocalTranslator, "open", fake.open)
    return fake
