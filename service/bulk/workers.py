"""What translates: a server behind a client, or a model in this process.  Plain records, so that they can travel."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from service.bulk.run import TranslateAll
from service.translation import ModelInfo, TranslateOptions, Translation

Opener = Callable[[], TranslateAll]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerWorker:
    """Calls a server."""

    address: str
    options: TranslateOptions
    model: str | None = None
    wait_s: float = 30.0
    batch_size: int = 64
    max_calls: int = 8

    def info(self) -> ModelInfo:
        """The model that will answer.

        Raises:
            DragomanError: no server, or no such model.
        """
        from service.client import Client
        from service.models.model_info import index_of

        with Client(self.address) as client:
            client.wait_until_ready(self.wait_s)
            infos = client.models()
        return infos[index_of(infos, model=self.model, source_language="", target_language="")]

    def __call__(self) -> TranslateAll:
        from service.client import Client
        from service.client.channel import ClientConfig

        client = Client(
            self.address, ClientConfig(batch_size=self.batch_size, max_calls=self.max_calls, timeout_s=300.0)
        )

        def translate_all(texts: Iterable[str]) -> Iterator[Translation]:
            return client.translate_all(texts, options=self.options, model=self.model)

        return translate_all


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleWorker:
    """Loads a bundle into this process."""

    bundle: Path
    options: TranslateOptions
    precision: str | None = None
    threads: int | None = None

    def info(self) -> ModelInfo:
        """The bundle's model."""
        from model.bundle import Bundle
        from service.models.model_info import describe

        return describe(Bundle.load(self.bundle), self.precision)

    def __call__(self) -> TranslateAll:
        from service.models.local import LocalTranslator

        local = LocalTranslator.open(self.bundle, precision=self.precision, threads=self.threads)

        def translate_all(texts: Iterable[str]) -> Iterator[Translation]:
            return local.translate_all(texts, self.options)

        return translate_all
