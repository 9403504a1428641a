"""A real server for the protocols of other services, whose models say everything again as it is."""

from collections.abc import Iterator

import pytest

from tests.fakes.echo_bundle import ModelRepository
from tests.fakes.packages import word
from tests.fakes.server_process import ServerProcess, start

ENGLISH, GERMAN = "The cat sleeps in the garden.", "Die Katze schnurrt laut im Garten."
CAT = word("<w:p><w:r><w:t>The cat sleeps.</w:t></w:r></w:p>")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """English to German and back, to Hebrew and to traditional Chinese, and a glossary."""
    repository = ModelRepository(tmp_path_factory.mktemp("models"))
    for source, target in (("en", "de"), ("de", "en"), ("en", "he"), ("en", "zh-Hant")):
        repository.put(f"{source}-{target}", "1", languages=(source, target))
    glossaries = tmp_path_factory.mktemp("glossaries")
    (glossaries / "animals.tsv").write_text("cat\tKatze\n")
    with start(
        None,
        tmp_path_factory.mktemp("server"),
        DRAGOMAN_MODELS__DIRECTORY=str(repository.directory),
        DRAGOMAN_MODELS__GLOSSARIES=str(glossaries),
        DRAGOMAN_MODELS__UPLOADED_GLOSSARIES=str(tmp_path_factory.mktemp("uploaded")),
        DRAGOMAN_LISTEN__CORS_ORIGINS="https://a.example",
        DRAGOMAN_SECURITY__IDENTITY_HEADER="x-user",
        DRAGOMAN_SECURITY__TRUSTED_PROXIES="127.0.0.1",
    ) as server:
        yield server
