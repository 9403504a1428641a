"""Sentences that come again, at the real server, whatever the protocol."""

import signal
from pathlib import Path

from protos import translation_pb2 as pb
from tests.fakes.calls import calling, eventually
from tests.fakes.echo_bundle import ModelRepository
from tests.fakes.http_requests import post
from tests.fakes.secured_server import Keys, keys, with_key
from tests.fakes.server_process import ServerProcess, StartServer

__all__ = ["keys"]

TEXT = "The cat sleeps in the garden."
CACHE = {"DRAGOMAN_LIMITS__TRANSLATION_CACHE_MB": "1"}


def asked(server: ServerProcess, result: str) -> float:
    return server.metric("dragoman_translation_cache_sentences_total", result=result)


async def test_sentence_comes_again_without_an_engine_until_the_model_is_replaced(
    start_server: StartServer, tmp_path: Path
):
    repository = ModelRepository(tmp_path / "models")
    repository.put("echo", "1")
    server = start_server(DRAGOMAN_MODELS__DIRECTORY=str(repository.directory), **CACHE)
    async with calling(server.address) as calls:
        first = await calls.translate(TEXT)
        again = await calls.translate(f"{TEXT} {TEXT}", format=pb.TEXT_FORMAT_HTML)
        html = post(server.http_port, "/translate", q=f"<p>{TEXT}</p>", source="en", target="de", format="html").json()

        assert first.translations[0].hypotheses[0] == again.translations[0].segments[0].hypotheses[0]
        assert html["translatedText"] == f"<p>{TEXT}</p>"
        assert (again.timings.decode_ms, again.translations[0].source_tokens) == (
            0.0,
            2 * first.translations[0].source_tokens,
        )
        assert (asked(server, "hit"), asked(server, "miss")) == (2.0, 1.0)
        assert server.metric("dragoman_translation_cache_bytes") > 0
        await calls.translate(TEXT, options=pb.TranslateOptions(use_cache=False))
        assert asked(server, "hit") == 2.0

        repository.put("echo", "2")
        server.process.send_signal(signal.SIGHUP)
        await eventually(lambda: server.metric("dragoman_model_reload_total", result="retired") == 1.0)
        assert server.metric("dragoman_translation_cache_bytes") == 0.0
        assert (await calls.translate(TEXT)).model_version == "2"
        assert (asked(server, "hit"), asked(server, "miss")) == (2.0, 2.0)


async def test_each_key_has_its_own(start_server: StartServer, keys: Keys):
    server = start_server(DRAGOMAN_SECURITY__API_KEYS=str(keys.file), **CACHE)
    async with calling(server.address) as calls:
        for key in (keys.shop, keys.admin, keys.shop):
            await calls.translate(TEXT, metadata=with_key(key))

    assert (asked(server, "hit"), asked(server, "miss")) == (1.0, 2.0)
    assert server.metric("dragoman_client_texts_total", client="shop") == 2.0
