"""`python -m trials.soak.mixed`: all protocols at once, at 70 % of what the server carries, for a minute.

Two API keys of equal share: one calls over gRPC (Translate, TranslateStream, Google's protocol), the other over
LibreTranslate's, DeepL's and the Open Inference Protocol.  Held: every text is answered, the server's books have what
the callers have seen, and the texts that the keys get in time are within 20 % of each other.  Figures, and a JSON line.
"""

import argparse
import asyncio
import os
import platform
import random
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import psutil

from model.bundle import default_bundle_dir
from protos import google_translation_pb2 as google_pb
from protos import open_inference_pb2 as inference
from service.api.auth import generate_key
from service.api.grpc import google, kserve
from service.cli.keys import append_entry, entry_of
from tests.fakes.books import Watch, watching
from tests.fakes.calls import TRANSLATE, Calls, calling, code_of
from tests.fakes.http_requests import post
from tests.fakes.load import closed_loop_rate
from tests.fakes.own_text import own_sentences
from tests.fakes.server_process import ServerProcess, start
from tests.fakes.streams import answers_of, message
from trials.long_runs import verdict

CAPACITY_S = 15.0
IN_TIME_S = 5.0
APART = 0.2  # at most, of the keys' goodput
NUM_THREADS = 128  # requests over HTTP at a time
LANGUAGES = {"source": "en", "target": "de"}
STREAM = "stream"
KEY_OF = {
    TRANSLATE[1:]: "one",
    STREAM: "one",
    google.TRANSLATE: "one",
    "libretranslate/translate": "two",
    "deepl/translate": "two",
    kserve.INFER: "two",
}

Send = Callable[[str], Awaitable[str]]  # text -> code


class Callers:
    """What each protocol sends, with its key."""

    def __init__(self, server: ServerProcess, calls: Calls, keys: dict[str, str]) -> None:
        self._server = server
        self._calls = calls
        self._keys = keys
        self._threads = ThreadPoolExecutor(NUM_THREADS)
        self._stream = calls.translate_stream(metadata=self.bearer("one"))
        self._writing = asyncio.Lock()
        self._awaited: dict[int, asyncio.Future[str]] = {}  # texts of the stream, by their ids
        self._reading = asyncio.create_task(self._read())
        self.sends: dict[str, Send] = dict(
            zip(
                KEY_OF, (self.unary, self.stream, self.google, self.libretranslate, self.deepl, self.infer), strict=True
            )
        )

    def bearer(self, name: str) -> list[tuple[str, str]]:
        return [("authorization", f"Bearer {self._keys[name]}")]

    async def unary(self, text: str) -> str:
        return (await code_of(self._calls.translate(text, metadata=self.bearer("one")))).name

    async def stream(self, text: str) -> str:
        number = len(self._awaited)
        self._awaited[number] = asyncio.get_running_loop().create_future()
        async with self._writing:  # gRPC takes one message at a time
            await self._stream.write(message((number, text)))
        return await self._awaited[number]

    async def google(self, text: str) -> str:
        request = google_pb.TranslateTextRequest(contents=[text], mime_type="text/plain", target_language_code="de")
        return await self._call(google.TRANSLATE, request, "one")

    async def infer(self, text: str) -> str:
        data = text.encode()
        request = inference.ModelInferRequest(
            model_name="en-de", raw_input_contents=[struct.pack("<I", len(data)) + data]
        )
        request.inputs.add(name="text", datatype="BYTES", shape=[1])
        return await self._call(kserve.INFER, request, "two")

    async def libretranslate(self, text: str) -> str:
        return await self._post("/translate", q=text, **LANGUAGES)

    async def deepl(self, text: str) -> str:
        return await self._post("/v2/translate", text=[text], source_lang="EN", target_lang="DE")

    async def end(self) -> str:
        """The status of the stream."""
        await self._stream.done_writing()
        await self._reading
        return str((await self._stream.code()).name)

    async def _call(self, method: str, request: Any, key: str) -> str:
        call = self._calls.method(f"/{method}")(request.SerializeToString(), metadata=self.bearer(key), timeout=30)
        return (await code_of(call)).name

    async def _post(self, path: str, **fields: Any) -> str:
        headers = dict(self.bearer("two"))
        loop = asyncio.get_running_loop()
        answer = await loop.run_in_executor(
            self._threads, lambda: post(self._server.http_port, path, headers, **fields)
        )
        return "OK" if answer.status == 200 else str(answer.status)

    async def _read(self) -> None:
        async for one in answers_of(self._stream):
            code = next(code for code in grpc.StatusCode if code.value[0] == one.translation.status.code)
            self._awaited[one.id].set_result(code.name)


async def offer(send: Send, rate: float, seconds: float, texts: list[str], seed: int) -> list[tuple[str, float]]:
    """Code and seconds of each text; they begin at the times of a Poisson process."""
    chance = random.Random(seed)

    async def one(text: str) -> tuple[str, float]:
        began = time.monotonic()
        code = await send(text)
        return code, time.monotonic() - began

    sent = []
    due, end = time.monotonic(), time.monotonic() + seconds
    while (due := due + chance.expovariate(rate)) < end:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        sent.append(asyncio.create_task(one(chance.choice(texts))))
    return await asyncio.gather(*sent)


async def run(options: argparse.Namespace, server: ServerProcess, keys: dict[str, str]) -> int:
    texts = list(own_sentences(2_000, seed=options.seed))
    async with calling(server.address) as calls:
        callers = Callers(server, calls, keys)
        capacity = await closed_loop_rate(
            server.address, texts, seconds=CAPACITY_S, concurrency=64, metadata=callers.bearer("measure")
        )
        before = {name: server.metric("dragoman_requests_total", method=name, code="OK") for name in KEY_OF}
        with watching(server, period_s=1.0) as watch:
            rate = options.share * capacity / len(KEY_OF)
            loads = [
                offer(send, rate, options.seconds, texts, options.seed + number)
                for number, send in enumerate(callers.sends.values())
            ]
            seen = dict(zip(callers.sends, await asyncio.gather(*loads), strict=True))
            stream_code = await callers.end()
            await asyncio.sleep(2.0)  # the last pages
    codes = {name: dict(Counter(code for code, _ in found)) for name, found in seen.items()}
    counted = {name: server.metric("dragoman_requests_total", method=name, code="OK") - before[name] for name in KEY_OF}
    goodput: Counter[str] = Counter()
    for name, found in seen.items():
        goodput[KEY_OF[name]] += sum(code == "OK" and wait_s <= IN_TIME_S for code, wait_s in found)
    apart = 1.0 - min(goodput.values()) / max(goodput.values())
    figures = {
        "seconds": options.seconds,
        "capacity_texts_per_s": round(capacity, 1),
        "offered_texts_per_s": round(options.share * capacity, 1),
        "codes": codes,
        "stream": stream_code,
        "p99_ms": {name: round(_p99(found) * 1e3) for name, found in seen.items()},
        "in_time_by_key": dict(goodput),
        "keys_apart": round(apart, 3),
        "pages": len(watch.moments),
        "machine": f"{platform.machine()}, {psutil.cpu_count()} CPUs, Python {platform.python_version()}",
    }
    has_errors = stream_code != "OK" or any(found.keys() != {"OK"} for found in codes.values())
    return verdict(
        "all protocols at once",
        figures,
        {
            "not every text was answered": has_errors,
            f"the keys are {apart:.0%} apart": apart > APART,
            **_wrong_books(watch, codes, counted),
        },
    )


def _p99(found: list[tuple[str, float]]) -> float:
    return sorted(wait_s for _, wait_s in found)[int(0.99 * len(found))]


def _wrong_books(watch: Watch, codes: dict[str, dict[str, int]], counted: dict[str, float]) -> dict[str, bool]:
    differ = [name for name in codes if name != STREAM and codes[name].get("OK", 0) != counted[name]]
    return {
        "the books do not balance": bool(watch.imbalances or watch.falls),
        f"the books of {', '.join(differ)} have other numbers than the callers": bool(differ),
        "pages are missing": bool(watch.failures),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m trials.soak.mixed")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--share", type=float, default=0.7, help="of the capacity, below 1; default 0.7")
    parser.add_argument("--edges", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "keys.toml"
        keys = {name: generate_key() for name in ("one", "two", "measure")}
        for name, key in keys.items():
            append_entry(file, entry_of(key, name))
        settings = {
            "DRAGOMAN_ENGINE__RUNNER_FACTORY": "service.engine.worker:create_runner",
            "DRAGOMAN_ENGINE__NUM_ENGINES": str(os.cpu_count()),
            "DRAGOMAN_SECURITY__API_KEYS": str(file),
            "DRAGOMAN_LISTEN__EDGES": str(options.edges),
        }
        server = start(default_bundle_dir(), Path(directory), **settings)
        try:
            return asyncio.run(run(options, server, keys))
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    sys.exit(main())
