"""Google's translation service and the Open Inference Protocol, on the port of our own, with real messages."""

import struct
from typing import Any, TypeVar

import grpc
import pytest
from google.protobuf.message import Message

from protos import google_translation_pb2 as google
from protos import open_inference_pb2 as inference
from tests.fakes.calls import Calls, calling, details_of, error_info, failure
from tests.fakes.dialect_server import ENGLISH, server
from tests.fakes.secured_server import Code, guarded, keys

__all__ = ["guarded", "keys", "server"]

GOOGLE, INFERENCE = "/google.cloud.translation.v3.TranslationService/", "/inference.GRPCInferenceService/"
_Response = TypeVar("_Response", bound=Message)


async def answered(
    calls: Calls, method: str, request: Message, kind: type[_Response], metadata: Any = None
) -> _Response:
    return kind.FromString(await calls.method(method)(request.SerializeToString(), timeout=120.0, metadata=metadata))


async def translated(calls: Calls, *contents: str, **fields: Any) -> google.TranslateTextResponse:
    request = google.TranslateTextRequest(
        parent="projects/mine", contents=contents, **{"target_language_code": "de", **fields}
    )
    return await answered(calls, f"{GOOGLE}TranslateText", request, google.TranslateTextResponse)


def raw(*texts: str) -> bytes:
    return b"".join(struct.pack("<I", len(data)) + data for data in map(str.encode, texts))


def infer_request(*texts: str, shape: tuple[int, ...] | None = None, **parameters: Any) -> inference.ModelInferRequest:
    request = inference.ModelInferRequest(model_name="en-de", id="7", raw_input_contents=[raw(*texts)])
    request.inputs.add(name="text", datatype="BYTES", shape=(len(texts),) if shape is None else shape)
    for name, value in parameters.items():
        field = "string_param" if isinstance(value, str) else "int64_param"
        setattr(request.parameters[name], field, value)
    return request


async def inferred(calls: Calls, request: inference.ModelInferRequest) -> inference.ModelInferResponse:
    return await answered(calls, f"{INFERENCE}ModelInfer", request, inference.ModelInferResponse)


async def infer_failure(calls: Calls, request: inference.ModelInferRequest) -> grpc.aio.AioRpcError:
    return await failure(inferred(calls, request))


class TestGoogle:
    async def test_texts_are_html_unless_the_request_says_otherwise(self, server):
        async with calling(server.address) as calls:
            as_html = await translated(calls, "a &amp; <b>b</b>")
            as_text = await translated(calls, "a &amp; b", mime_type="text/plain", source_language_code="en-US")

        assert [item.translated_text for item in as_html.translations] == ["a &amp; <b>b</b>"]
        assert [item.translated_text for item in as_text.translations] == ["a &amp; b"]
        assert not as_text.translations[0].detected_language_code

    async def test_warnings_are_in_the_trailers(self, server):
        async with calling(server.address) as calls:
            trailers = []
            for text in (ENGLISH, "Anna"):
                request = google.TranslateTextRequest(
                    contents=[text], source_language_code="en", target_language_code="de"
                )
                call = calls.method(f"{GOOGLE}TranslateText")(request.SerializeToString(), timeout=120.0)
                await call
                trailers.append(dict(await call.trailing_metadata()))

        assert trailers[0]["x-translation-warnings"] == "copied=1"
        assert "x-translation-warnings" not in trailers[1]

    @pytest.mark.parametrize(
        ("fields", "code", "field"),
        [
            ({"mime_type": "text/rtf"}, Code.INVALID_ARGUMENT, "mime_type"),
            ({"target_language_code": ""}, Code.INVALID_ARGUMENT, "target_language_code"),
            ({"target_language_code": "fr"}, Code.NOT_FOUND, None),
            ({"model": "projects/p/locations/l/models/mine"}, Code.NOT_FOUND, None),
            ({"transliteration_config": {"enable_transliteration": True}}, Code.INVALID_ARGUMENT, None),
            ({"glossary_config": {"glossary": "animals", "ignore_case": True}}, Code.INVALID_ARGUMENT, None),
        ],
    )
    async def test_what_is_not_served_is_refused_by_name(self, server, fields, code, field):
        async with calling(server.address) as calls:
            error = await failure(translated(calls, "a", **fields))

        assert error.code() is code
        assert field is None or error_info(error).metadata["field"] == field

    async def test_languages_are_those_of_the_models(self, server):
        async with calling(server.address) as calls:
            method, kind = f"{GOOGLE}GetSupportedLanguages", google.SupportedLanguages
            every = await answered(calls, method, google.GetSupportedLanguagesRequest(), kind)
            one = await answered(calls, method, google.GetSupportedLanguagesRequest(model="x/models/en-de"), kind)

        assert [item.language_code for item in every.languages if item.support_source] == ["de", "en"]
        assert [item.language_code for item in one.languages if item.support_target] == ["de"]


class TestOpenInference:
    async def test_tensors_keep_shape_and_order_raw_or_not(self, server):
        plain = infer_request("a", "b")
        plain.inputs[0].contents.bytes_contents.extend([b"a", "ä".encode()])
        plain.ClearField("raw_input_contents")
        async with calling(server.address) as calls:
            packed = await inferred(calls, infer_request("a", "b", shape=(2, 1), source_language="en"))
            unpacked = await inferred(calls, plain)

        assert (packed.model_name, packed.model_version, packed.id) == ("en-de", "1", "7")
        assert (packed.outputs[0].name, list(packed.outputs[0].shape)) == ("translation", [2, 1])
        assert list(packed.raw_output_contents) == [raw("a", "b")]
        assert [text.decode() for text in unpacked.outputs[0].contents.bytes_contents] == ["a", "ä"]

    async def test_warnings_come_as_a_parameter(self, server):
        async with calling(server.address) as calls:
            answer = await inferred(calls, infer_request("fine.", "The little cats sleep here."))

        assert answer.parameters["warnings"].string_param.startswith("text[1]: ")

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"shape": (3,)}, "text has 1 elements and the shape [3], they must agree"),
            ({"shape": (-1, -1)}, "text has 2 dimensions, at most 8 and none below 0 are accepted"),
            ({"shape": (1,) * 9}, "text has 9 dimensions, at most 8 and none below 0 are accepted"),
            ({"priority": "high"}, "parameter priority is 'high', it must be an integer from 0 on"),
            ({"timeout": -1}, "parameter timeout is -1, it must be an integer from 0 on"),
            ({"target_language": 1}, "parameter target_language is 1, it must be a string"),
        ],
    )
    async def test_wrong_tensors_and_parameters_are_refused(self, server, change, message):
        async with calling(server.address) as calls:
            error = await infer_failure(calls, infer_request("a", **change))

        assert (error.code(), details_of(error)) == (Code.INVALID_ARGUMENT, message)

    async def test_timeout_parameter_is_a_deadline(self, server):
        async with calling(server.address) as calls:
            error = await infer_failure(calls, infer_request("a", timeout=1))

        assert error.code() in (Code.DEADLINE_EXCEEDED, Code.RESOURCE_EXHAUSTED)

    async def test_models_are_described_and_others_are_not_ready(self, server):
        async with calling(server.address) as calls:
            request = inference.ModelMetadataRequest(name="en-de")
            described = await answered(calls, f"{INFERENCE}ModelMetadata", request, inference.ModelMetadataResponse)
            is_ready = [
                (await answered(calls, f"{INFERENCE}ModelReady", request, inference.ModelReadyResponse)).ready
                for request in (
                    inference.ModelReadyRequest(name="en-de", version="1"),
                    inference.ModelReadyRequest(name="en-de", version="2"),
                    inference.ModelReadyRequest(name="fr-en"),
                )
            ]

        assert [(tensor.name, tensor.datatype) for tensor in described.inputs] == [("text", "BYTES")]
        assert is_ready == [True, False, False]


async def test_google_key_opens_and_readiness_needs_none(guarded, keys):
    async with calling(guarded.address) as calls:
        request = google.TranslateTextRequest(contents=["a"], target_language_code="de")
        method, kind = f"{GOOGLE}TranslateText", google.TranslateTextResponse
        good = await answered(calls, method, request, kind, metadata=(("x-goog-api-key", keys.shop),))
        bad = await failure(answered(calls, method, request, kind, metadata=(("x-goog-api-key", "x"),)))
        ready = await answered(
            calls, f"{INFERENCE}ServerReady", inference.ServerReadyRequest(), inference.ServerReadyResponse
        )
        closed = await failure(
            answered(calls, f"{INFERENCE}ModelReady", inference.ModelReadyRequest(), inference.ModelReadyResponse)
        )

    assert len(good.translations) == 1
    assert (bad.code(), closed.code(), ready.ready) == (Code.UNAUTHENTICATED, Code.UNAUTHENTICATED, True)
