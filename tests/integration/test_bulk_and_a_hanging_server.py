"""`dragoman bulk`'s run against a server that hangs in the middle of a file: its event loop stands still."""

import asyncio
import threading
from pathlib import Path

from protos import translation_pb2 as pb
from service.bulk.job import Description, Job
from service.bulk.lines import Lines
from service.bulk.run import translate_parts
from service.bulk.source import Source
from service.bulk.workers import Say, ServerWorker
from service.client.channel import ClientConfig
from service.records import TranslateOptions
from tests.fakes.own_text import own_sentences
from tests.fakes.scripted_server import Context, running, shout

__all__ = ["running"]

WITHIN_S = 30.0
BATCH_SIZE, NUM_BATCHES = 8, 5
HANGS_AT = 3  # request


def translate_file(source: Path, output: Path, address: str, say: Say) -> None:
    """With short limits; a call at a time, so that a single one meets the hanging server."""
    worker = ServerWorker(
        address=address,
        client_config=ClientConfig,
        options=TranslateOptions(),
        timeout_s=2.0,
        ready_s=0.5,
        batch_size=BATCH_SIZE,
        max_calls=1,
    )
    description = Description(
        source_sha256="0", format="lines", part_size=10, model="loud", model_version="7", precision="", options={}
    )
    job = Job(Source.of(source), output, Lines(), description)
    with job.opened():
        translate_parts(job, job.missing(), worker(say), lambda _: None)
        job.finish()


async def test_a_server_that_hangs_is_waited_for_and_gets_the_same_batch_again(running, tmp_path):
    source, output = tmp_path / "in.txt", tmp_path / "out.txt"
    lines = own_sentences(BATCH_SIZE * NUM_BATCHES)
    source.write_text("".join(f"{line}\n" for line in lines))
    is_waited_for = threading.Event()
    said: list[str] = []

    async def hang_once(request: pb.TranslateRequest, context: Context) -> pb.TranslateResponse:
        if len(running.service.requests) == HANGS_AT:
            assert is_waited_for.wait(WITHIN_S)  # nothing else is answered either
        return await shout(request, context)

    def say(line: str) -> None:
        said.append(line)
        is_waited_for.set()

    running.service.handler = hang_once
    await asyncio.to_thread(translate_file, source, output, running.address, say)

    assert output.read_text() == "".join(f"{line.upper()}\n" for line in lines)
    assert [len(request.texts) for request in running.service.requests] == [BATCH_SIZE] * (NUM_BATCHES + 1)
    assert running.service.requests[HANGS_AT - 1] == running.service.requests[HANGS_AT]
    (line,) = said
    assert line.startswith("waiting, at most 300 s (--max-outage): a call was late (Deadline Exceeded), ")
    assert line.endswith(f", and no server was ready at {running.address} within 0.5 s")
