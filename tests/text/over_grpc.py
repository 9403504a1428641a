"""A server with the included models, as a function from a request to its translations."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import grpc

from protos import translation_pb2 as pb
from service.client.messages import decode_result, encode_request
from service.records import Translation, TranslationRequest
from tests.fakes.calls import TRANSLATE
from tests.fakes.server_process import start
from tests.text.judging import Translate

TIMEOUT_S = 600.0
SETTINGS = {
    "DRAGOMAN_ENGINE__RUNNER_FACTORY": "service.engine.worker:create_runner",
    "DRAGOMAN_LIMITS__MAX_REQUEST_SECONDS": "600",
    "DRAGOMAN_LIMITS__MAX_QUEUE_SECONDS": "600",
}


@contextmanager
def included_models(directory: Path) -> Iterator[Translate]:
    """Start a server with the included models, one engine each; `directory` is for its log."""
    with start(None, directory, **SETTINGS) as server, grpc.insecure_channel(server.address) as channel:
        method = channel.unary_unary(TRANSLATE, pb.TranslateRequest.SerializeToString, pb.TranslateResponse.FromString)

        def translate(request: TranslationRequest) -> Sequence[Translation]:
            answer = method(encode_request(request), timeout=TIMEOUT_S)
            return decode_result(answer, len(request.texts)).translations

        yield translate
