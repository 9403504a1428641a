"""What a large document costs, and what other callers notice of it: the real server, the included model, one docx.

    python bench/bench_files.py [--pages 60] [--megabytes 1] [--seconds 10] [--rounds 5]
    python bench/bench_files.py --pages 1000 --megabytes 50 --whole

A round: short texts, one after another, alone; then a document of so many pages is sent, and short texts go on while
it is read and, for so many seconds, while its sentences are translated; then its caller leaves.  Alone and beside take
turns, since the speed of a machine changes.  A page is 2,000 characters, in runs as Word cuts them; the rest of the
size is a picture.  With `--whole`, one document is translated to its end, and there are short texts for so many seconds
of each minute.

Figures: milliseconds of the short texts and, on average, where they go (in the queue, the encoder and the decoder; as
text; everything else, such as the way through the server's loop); seconds until the document is read; memory of the
server's first process and, at most, of all its processes (proportional: shared pages once).  One machine runs both
sides.
"""

import http.client
import io
import json
import random
import statistics
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, NamedTuple

import grpc
import psutil
import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import machine
from protos import translation_pb2 as pb
from protos import translation_pb2_grpc as rpc
from tests.fakes.own_text import own_sentences
from tests.fakes.packages import parts_of, word
from tests.fakes.server_process import ServerProcess, start

CHARACTERS = 2_000  # of a page
SHORT = [sentence for sentence in own_sentences(400, seed=7) if len(sentence) < 60]
AS_USERS_HAVE = {"DRAGOMAN_ENGINE__RUNNER_FACTORY": "", "DRAGOMAN_ENGINE__NUM_ENGINES": ""}  # engines


def document(pages: int, megabytes: int) -> bytes:
    """A docx in which every sentence is three runs, the middle one bold or not."""
    rng, sentences, paragraphs, characters = random.Random(1), own_sentences(3_000), list[str](), 0
    while characters < pages * CHARACTERS:
        runs = ""
        for sentence in rng.sample(sentences, 4):
            words = sentence.split()
            at = rng.randrange(len(words))
            bold = "<w:b/>" if rng.random() < 0.3 else ""
            for text, properties in ((words[:at], ""), (words[at : at + 1], bold), (words[at + 1 :], "")):
                language = '<w:lang w:val="en-US"/>'
                said = " ".join(text).replace("&", "&amp;")
                runs += f'<w:r w:rsidR="{rng.randrange(10_000):08}"><w:rPr>{properties}{language}</w:rPr>'
                runs += f'<w:t xml:space="preserve">{said} </w:t></w:r>'
            characters += len(sentence)
        paragraphs.append(f"<w:p>{runs}</w:p>")
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in parts_of(word("".join(paragraphs))).items():
            archive.writestr(name, part)
        rest = max(0, (megabytes << 20) - written.tell())
        archive.writestr("word/media/image1.jpeg", rng.randbytes(rest), zipfile.ZIP_STORED)
    return written.getvalue()


class Shot(NamedTuple):
    """Milliseconds of a short text, and where they went."""

    total: float
    queue: float
    encode: float
    decode: float
    text: float

    @property
    def rest(self) -> float:
        return self.total - sum(self[1:])


class ShortTexts:
    """A caller with one short text after another, each another one than before."""

    def __init__(self, address: str) -> None:
        self._stub = rpc.TranslationServiceStub(grpc.insecure_channel(address))
        self._num_sent = 0

    def shots(self, seconds: float, is_over: Callable[[], bool] = lambda: False) -> list[Shot]:
        """Translate for so long."""
        shots: list[Shot] = []
        ends = time.monotonic() + seconds
        while time.monotonic() < ends and not is_over():
            self._num_sent += 1
            text = f"{SHORT[self._num_sent % len(SHORT)][:-1]}, number {self._num_sent}."
            began = time.monotonic()
            answer = self._stub.Translate(pb.TranslateRequest(texts=[text], source_language="en", target_language="de"))
            total, spent = (time.monotonic() - began) * 1e3, answer.timings
            text_ms = spent.tokenize_ms + spent.detokenize_ms
            shots.append(Shot(total, spent.queue_ms, spent.encode_ms, spent.decode_ms, text_ms))
        return shots


def sent(server: ServerProcess, content: bytes) -> http.client.HTTPConnection:
    """The connection over which a document is sent; once it is closed, nobody waits for the translation."""
    fields = "".join(
        f'--limit\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in (("source", "en"), ("target", "de"))
    )
    file = '--limit\r\nContent-Disposition: form-data; name="file"; filename="a.docx"\r\n\r\n'
    body = (fields + file).encode() + content + b"\r\n--limit--\r\n"
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port)
    connection.request("POST", "/translate_file", body, {"Content-Type": "multipart/form-data; boundary=limit"})
    return connection


def is_translated(server: ServerProcess) -> bool:
    """Whether sentences of a document are in the queue or the engines: more than those of one short text."""
    return server.metric("dragoman_queue_requests") + server.metric("dragoman_running_jobs") > 1


def row(name: str, shots: list[Shot]) -> list[str]:
    cuts = statistics.quantiles([shot.total for shot in shots], n=100)
    where = [statistics.mean(getattr(shot, part) for shot in shots) for part in (*Shot._fields[1:], "rest")]
    return [name, str(len(shots)), *(f"{value:.1f}" for value in (cuts[49], cuts[94], cuts[98], *where))]


def main(
    pages: Annotated[int, typer.Option(min=1)] = 60,
    megabytes: Annotated[int, typer.Option(min=1)] = 1,
    seconds: Annotated[float, typer.Option(min=5.0, help="Of short texts, without and with the document.")] = 10.0,
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    whole: Annotated[bool, typer.Option("--whole", help="One document to its end.")] = False,
    engines: Annotated[int, typer.Option(min=0, help="Engine processes; 0: as many as a server has.")] = 0,
) -> None:
    """Measure."""
    content = document(pages, megabytes)
    shots: dict[str, list[Shot]] = {"alone": [], "while it is read": [], "while it is translated": []}
    read_s: list[float] = []
    peaks: dict[str, int] = {}
    whole_s = 0.0
    with tempfile.TemporaryDirectory() as directory:
        settings = {**AS_USERS_HAVE, "DRAGOMAN_LIMITS__MAX_DOCUMENT_BYTES": str(1 << 28)}
        if engines:
            settings["DRAGOMAN_ENGINE__NUM_ENGINES"] = str(engines)
        server = start(None, Path(directory), **settings)
        try:
            memory = psutil.Process(server.process.pid).memory_info
            caller = ShortTexts(server.address)
            caller.shots(5.0)
            before = memory().rss
            threading.Thread(target=watch_memory, args=(server, peaks), daemon=True).start()
            for _ in range(1 if whole else rounds):
                shots["alone"] += caller.shots(seconds)
                began = time.monotonic()
                connection = sent(server, content)
                is_read = threading.Event()
                threading.Thread(target=watch, args=(server, is_read), daemon=True).start()
                shots["while it is read"] += caller.shots(600.0, is_read.is_set)
                read_s.append(round(time.monotonic() - began, 1))
                shots["while it is translated"] += caller.shots(seconds)
                if whole:
                    is_done = threading.Event()
                    threading.Thread(target=receive, args=(connection, is_done), daemon=True).start()
                    while not is_done.wait(60.0 - seconds):
                        shots["while it is translated"] += caller.shots(seconds, is_done.is_set)
                    whole_s = round(time.monotonic() - began, 1)
                connection.close()
                while is_translated(server):
                    time.sleep(0.1)
            after = memory().rss
        finally:
            server.process.kill()
            server.process.wait()
    title = f"docx of {pages} pages, {megabytes} MB"
    table = Table("short texts", "number", "p50 ms", "p95 ms", "p99 ms", *Shot._fields[1:], "rest", title=title)
    rows = [row(name, found) for name, found in shots.items()]
    for one in rows:
        table.add_row(*one)
    Console(width=120).print(table)
    times = [[float(value) for value in one[2:5]] for one in rows]
    ratios = [[round(there / alone, 2) for there, alone in zip(one, times[0], strict=True)] for one in times[1:]]
    figures: dict[str, object] = {
        "ratios": ratios,
        "read_s": read_s,
        "rss_mib": [before >> 20, after >> 20],
        "peak_mib": peaks,
    }
    if whole:
        figures["whole_s"] = whole_s
    print(json.dumps({"rows": rows, **figures, "machine": machine.describe(2)}))


def watch(server: ServerProcess, is_read: threading.Event) -> None:
    """Say when the document's sentences are translated."""
    while not is_translated(server):
        time.sleep(0.2)
    is_read.set()


def receive(connection: http.client.HTTPConnection, is_done: threading.Event) -> None:
    """Say when the whole translation is there; raises where it was refused."""
    try:
        response = connection.getresponse()
        content = response.read()
        assert response.status == 200, content
        print(content.decode())
    finally:
        is_done.set()


def watch_memory(server: ServerProcess, peaks: dict[str, int]) -> None:
    """Note the most memory, in MiB, of the server's first process, of all others together, and of all."""
    first = psutil.Process(server.process.pid)
    with suppress(psutil.Error):  # it has ended
        while True:
            sizes = [_memory_of(one) for one in (first, *first.children(recursive=True))]
            for name, size in (("first", sizes[0]), ("others", sum(sizes[1:])), ("all", sum(sizes))):
                peaks[name] = max(peaks.get(name, 0), size >> 20)
            time.sleep(1.0)


def _memory_of(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return int(process.memory_full_info().pss)
    return 0


if __name__ == "__main__":
    typer.run(main)
