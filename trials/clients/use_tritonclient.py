"""Triton's Python client of the Open Inference Protocol over gRPC."""

from collections.abc import Callable

import numpy as np
from cases import FULL_GRPC, GUARDED_GRPC, KEY, NAMES, OPEN_GRPC, TEXT, Has, expect, raised, run
from tritonclient.grpc import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException


def translated(address: str, *texts: str, model: str = "en-de", key: str = "") -> list[str]:
    tensor = InferInput("text", [len(texts)], "BYTES")
    tensor.set_data_from_numpy(np.array([text.encode() for text in texts], dtype=np.object_))
    headers = {"authorization": f"Bearer {key}"} if key else None
    answer = InferenceServerClient(address).infer(model, [tensor], headers=headers, priority=2, timeout=9_000_000)
    return [text.decode() for text in answer.as_numpy("translation")]


def text() -> None:
    client = InferenceServerClient(OPEN_GRPC)
    expect((client.is_server_live(), client.is_server_ready(), client.is_model_ready("en-de")), (True, True, True))
    expect([one.datatype for one in client.get_model_metadata("en-de").inputs], ["BYTES"])
    expect(translated(OPEN_GRPC, TEXT), [TEXT])
    expect(translated(GUARDED_GRPC, "ok", key=KEY), ["ok"])


def has_no_html() -> None:
    raise Has("the protocol has none")


def refused(status: str, address: str, model: str = "en-de", key: str = "") -> Callable[[], None]:
    def check() -> None:
        error = raised(InferenceServerException, lambda: translated(address, "ok", model=model, key=key))
        assert isinstance(error, InferenceServerException)
        expect(error.status(), f"StatusCode.{status}")

    return check


cases = (
    text,
    lambda: expect(translated(OPEN_GRPC, "one", "two", "ok"), ["one", "two", "ok"]),
    has_no_html,
    refused("NOT_FOUND", OPEN_GRPC, model="xx-de"),
    refused("UNAUTHENTICATED", GUARDED_GRPC, key="other"),
    refused("RESOURCE_EXHAUSTED", FULL_GRPC),
)
run(dict(zip(NAMES, cases, strict=True)))
