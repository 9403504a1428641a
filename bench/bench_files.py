"""What a large document costs, and what other callers notice of it: the real server, the included model, one docx.

    python bench/bench_files.py [--pages 1000] [--megabytes 50] [--seconds 60]

Sends a document of so many pages to DeepL's protocol and short texts, one after another: alone, while the document is
read, and while its sentences are translated; after so many seconds the rest of it is not waited for.  A page is 2,000
characters, in runs as Word cuts them; the rest of the size is a picture.  Figures: time of the upload and until the
first sentences are translated, milliseconds of the short texts, memory of the server's first process, and the
document's status at the end.  One machine runs both sides.
"""

import io
import json
import random
import statistics
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, cast

import psutil
import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import machine
from tests.fakes.http_requests import post, post_multipart
from tests.fakes.own_text import own_sentences
from tests.fakes.packages import parts_of, word
from tests.fakes.server_process import start

CHARACTERS = 2_000  # of a page
LONGEST_S = 600.0  # that a document waits and is read
RUNNER = "service.engine.worker:create_runner"
SHORT = [sentence for sentence in own_sentences(400, seed=7) if len(sentence) < 60]


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


def short_texts(port: int, seconds: float, is_over: Callable[[], bool] = lambda: False) -> list[float]:
    """Milliseconds of short texts, one after another for so long; each is another one than before."""
    times: list[float] = []
    ends = time.monotonic() + seconds
    while time.monotonic() < ends and not is_over():
        text = f"{SHORT[len(times) % len(SHORT)][:-1]}, number {len(times)}."
        began = time.monotonic()
        post(port, "/translate", q=text, source="en", target="de")
        times.append((time.monotonic() - began) * 1e3)
    return times


def status_of(port: int, handle: dict[str, str]) -> dict[str, str]:
    """What DeepL's protocol says of a document."""
    path = f"/v2/document/{handle['document_id']}"
    return cast("dict[str, str]", post(port, path, document_key=handle["document_key"]).json())


def row(name: str, times: list[float]) -> list[str]:
    cuts = statistics.quantiles(times, n=100)
    return [name, str(len(times)), f"{cuts[49]:.0f}", f"{cuts[94]:.0f}", f"{cuts[98]:.0f}"]


def main(
    pages: Annotated[int, typer.Option(min=1)] = 1_000,
    megabytes: Annotated[int, typer.Option(min=1)] = 50,
    seconds: Annotated[float, typer.Option(min=5.0, help="Of short texts, without and with the document.")] = 60.0,
) -> None:
    """Measure."""
    content = document(pages, megabytes)
    with tempfile.TemporaryDirectory() as directory:
        settings = {"DRAGOMAN_ENGINE__RUNNER_FACTORY": RUNNER, "DRAGOMAN_LIMITS__MAX_DOCUMENT_BYTES": str(1 << 28)}
        server = start(None, Path(directory), **settings)
        try:
            process = psutil.Process(server.process.pid)
            short_texts(server.http_port, 5.0)
            alone, before = short_texts(server.http_port, seconds), process.memory_info().rss
            began = time.monotonic()
            wish = [("source_lang", "EN"), ("target_lang", "DE")]
            handle = post_multipart(server.http_port, "/v2/document", wish, ("a.docx", content)).json()
            upload_s = time.monotonic() - began
            status = partial(status_of, server.http_port, handle)
            reading = short_texts(server.http_port, LONGEST_S, lambda: status()["status"] != "queued")
            read_s = time.monotonic() - began
            beside, after = short_texts(server.http_port, seconds), process.memory_info().rss
            ends = status()
        finally:
            server.process.kill()
            server.process.wait()
    table = Table("short texts", "number", "p50 ms", "p95 ms", "p99 ms", title=f"docx of {pages} pages, {megabytes} MB")
    rows = [row("alone", alone), row("while it is read", reading), row("while it is translated", beside)]
    for one in rows:
        table.add_row(*one)
    Console().print(table)
    times = {"upload_s": round(upload_s, 2), "read_s": round(read_s, 2)}
    figures = {**times, "rss_mib": [before >> 20, after >> 20], "status": ends}
    print(json.dumps({"rows": rows, **figures, "machine": machine.describe(2)}))


if __name__ == "__main__":
    typer.run(main)
