"""What an error of ONNX Runtime means is read from its text."""

import pytest

from service.engine.device_errors import DeviceLost, DeviceOutOfMemory, explained

# As ONNX Runtime and CUDA were seen to put it, in their issues and in runs.
OUT_OF_MEMORY = (
    "running ReduceSum node. BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer of size 9395",
    "6 : RUNTIME_EXCEPTION : bfc_arena.cc:331 Failed to allocate memory for requested buffer of size 8388608",
    "Available memory of 1024 is smaller than requested bytes of 4096",
    "CUDA failure 2: out of memory ; GPU=0 ; file=cuda_allocator.cc ; line=48 ; expr=cudaMalloc(&p, size);",
    "CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED ; GPU=0 ; expr=cublasCreate(&cublas_handle_);",
)
LOST = (
    "1 : FAIL : CUDA failure 719: unspecified launch failure ; GPU=0 ; expr=cudaMemcpyAsync(dst, src, bytes);",
    "CUDA failure 700: an illegal memory access was encountered ; GPU=1 ; expr=cudaLaunchHostFunc(stream);",
    "CUDA failure 999: unknown error ; GPU=0 ; expr=cudaSetDevice(info_.device_id);",
    "CUDA failure 46: CUDA-capable device(s) is/are busy or unavailable ; GPU=0 ; expr=cudaSetDevice(0);",
    "Failed to initialize NVML: Unknown error",
    "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
)
OTHER = (
    "[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Got invalid dimensions for input: tokens",
    "CUDA failure 1: invalid argument ; GPU=1 ; expr=cudaMemcpyAsync(output, input, size, stream);",
    "",
)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        *((message, DeviceOutOfMemory) for message in OUT_OF_MEMORY),
        *((message, DeviceLost) for message in LOST),
        *((message, KeyError) for message in OTHER),
    ],
)
def test_errors_are_told_apart_by_their_text_which_they_keep(message, expected):
    with pytest.raises(BaseException) as raised, explained():
        raise KeyError(message)

    assert raised.type is expected
    assert message in str(raised.value)
