"""inference.GRPCInferenceService, the Open Inference Protocol: tensors of texts to records and back.

Errors leave as exceptions of `errors.py`; `handlers.py` gives them a status.
"""

import asyncio
import math
import struct
import time
from collections.abc import Sequence

from protos import open_inference_pb2 as pb
from service.call import Call
from service.errors import InvalidInput, NotFound
from service.records import ModelInfo, Priority, TranslationRequest, TranslationResult
from service.telemetry.metrics import server_version
from service.translate.router import Router

SERVICE = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"]
INFER = f"{SERVICE.full_name}/ModelInfer"

_INPUT, _OUTPUT, _BYTES = "text", "translation", "BYTES"
_MAX_DIMENSIONS = 8  # of a tensor; their product would grow without end


class OpenInferenceServicer:
    """Answers all methods of the protocol."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def server_live(self, _: pb.ServerLiveRequest, __: Call) -> pb.ServerLiveResponse:
        """Return that the server is alive."""
        return pb.ServerLiveResponse(live=True)

    async def server_ready(self, _: pb.ServerReadyRequest, __: Call) -> pb.ServerReadyResponse:
        """Return whether the server takes texts."""
        translator = self._router.translator
        return pb.ServerReadyResponse(ready=translator.admission.is_open and bool(translator.catalogue.models))

    async def model_ready(self, request: pb.ModelReadyRequest, call: Call) -> pb.ModelReadyResponse:
        """Return whether the model serves, in this version if the request has one."""
        return pb.ModelReadyResponse(ready=self._find(request.name, request.version, call) is not None)

    async def server_metadata(self, _: pb.ServerMetadataRequest, __: Call) -> pb.ServerMetadataResponse:
        """Return the server's name and version."""
        return pb.ServerMetadataResponse(name="dragoman", version=server_version())

    async def model_metadata(self, request: pb.ModelMetadataRequest, call: Call) -> pb.ModelMetadataResponse:
        """Return the tensors of a model; raises NotFound."""
        info = self._find(request.name, request.version, call)
        if info is None:
            raise _no_model(request.name, request.version)
        tensor = pb.ModelMetadataResponse.TensorMetadata
        return pb.ModelMetadataResponse(
            name=info.name,
            versions=[info.version],
            platform=f"{info.runtime}_{info.device}",
            inputs=[tensor(name=_INPUT, datatype=_BYTES, shape=[-1])],
            outputs=[tensor(name=_OUTPUT, datatype=_BYTES, shape=[-1])],
        )

    async def model_infer(self, request: pb.ModelInferRequest, call: Call) -> pb.ModelInferResponse:
        """Return the translation of each text, or the error of the first text that has none."""
        if request.model_version and self._find(request.model_name, request.model_version, call) is None:
            raise _no_model(request.model_name, request.model_version)
        shape, texts = _decode_texts(request)
        translation_request = TranslationRequest(
            texts=texts,
            model=request.model_name,
            source_language=_string(request, "source_language"),
            target_language=_string(request, "target_language"),
            priority=_priority(_integer(request, "priority")),
        )
        timeout_s = _integer(request, "timeout") / 1e6
        if timeout_s and (deadline := time.monotonic() + timeout_s) < call.deadline:
            call.deadline, call.limit_s = deadline, None  # the caller's, from now on
        async with asyncio.timeout(call.deadline - time.monotonic()):
            result = await self._router.translate(translation_request, call)
        return _encode(request, result, shape)

    def _find(self, name: str, version: str, call: Call) -> ModelInfo | None:
        for info in self._router.infos(call):
            if info.name == name and version in ("", info.version):
                return info
        return None


def _no_model(name: str, version: str) -> NotFound:
    return NotFound(f"there is no model {name[:40]!r}{f' of version {version[:40]!r}' if version else ''}")


def _integer(request: pb.ModelInferRequest, name: str) -> int:
    """Return a parameter that is a number from 0 on; 0 without it."""
    value = _parameter(request, name)
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:  # as clients without integers send it
        value = int(value)
    if value is None:
        return 0
    if type(value) is not int or value < 0:
        raise InvalidInput(f"parameter {name} is {value!r:.40}, it must be an integer from 0 on", field=name)
    return value


def _string(request: pb.ModelInferRequest, name: str) -> str:
    """Return a parameter that is a string; an empty one without it."""
    value = _parameter(request, name)
    if not isinstance(value, str | None):
        raise InvalidInput(f"parameter {name} is {value!r:.40}, it must be a string", field=name)
    return value or ""


def _parameter(request: pb.ModelInferRequest, name: str) -> object:
    choice = request.parameters[name].WhichOneof("parameter_choice") if name in request.parameters else None
    return getattr(request.parameters[name], choice) if choice else None


def _priority(level: int) -> Priority | None:
    """Return the class of work; as in Triton, 0 is the default and 1 the highest."""
    if level == 0:
        return None
    return Priority.INTERACTIVE if level == 1 else Priority.BATCH


def _decode_texts(request: pb.ModelInferRequest) -> tuple[Sequence[int], tuple[str, ...]]:
    """Return the shape of the input, and its texts."""
    if len(request.inputs) != 1 or request.inputs[0].name != _INPUT or request.inputs[0].datatype != _BYTES:
        given = ", ".join(f"{one.name[:40]} ({one.datatype[:40]})" for one in request.inputs[:4]) or "none"
        raise InvalidInput(f"inputs are {given}; one is accepted, {_INPUT} of type {_BYTES}", field="inputs")
    if any(output.name != _OUTPUT for output in request.outputs):
        raise InvalidInput(f"the only output is {_OUTPUT}", field="outputs")
    (tensor,) = request.inputs
    if len(tensor.shape) > _MAX_DIMENSIONS or min(tensor.shape, default=0) < 0:
        problem = (
            f"{_INPUT} has {len(tensor.shape)} dimensions, at most {_MAX_DIMENSIONS} and none below 0 are accepted"
        )
        raise InvalidInput(problem, field="inputs")
    if request.raw_input_contents:
        parts = _split_raw(b"".join(request.raw_input_contents))
    else:
        parts = list(tensor.contents.bytes_contents)
    if len(parts) != math.prod(tensor.shape):
        shape = list(tensor.shape)
        raise InvalidInput(f"{_INPUT} has {len(parts)} elements and the shape {shape}, they must agree", field="inputs")
    return tensor.shape, tuple([_decode_text(part, index) for index, part in enumerate(parts)])


def _split_raw(data: bytes) -> list[bytes]:
    parts, position = [], 0
    while position < len(data):
        length = int.from_bytes(data[position : position + 4], "little")
        position += 4
        if position + length > len(data):
            raise InvalidInput("raw_input_contents ends within a text", field="raw_input_contents")
        parts.append(data[position : position + length])
        position += length
    return parts


def _decode_text(data: bytes, index: int) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        message = f"is not valid UTF-8: {error.reason} at byte {error.start}"
        raise InvalidInput(message, field=_INPUT, index=index) from None


def _encode(request: pb.ModelInferRequest, result: TranslationResult, shape: Sequence[int]) -> pb.ModelInferResponse:
    """Return the response; raises the error of the first text that has one."""
    texts = [translation.text.encode() for translation in result.translations]
    response = pb.ModelInferResponse(model_name=result.model, model_version=result.model_version, id=request.id)
    output = response.outputs.add(name=_OUTPUT, datatype=_BYTES, shape=shape)
    if request.raw_input_contents:
        response.raw_output_contents.append(b"".join(struct.pack("<I", len(text)) + text for text in texts))
    else:
        output.contents.bytes_contents.extend(texts)
    warnings = [
        f"{_INPUT}[{index}]: {warning.message}"
        for index, translation in enumerate(result.translations)
        for warning in translation.warnings
    ]
    if warnings:
        response.parameters["warnings"].string_param = "\n".join(warnings)
    return response
