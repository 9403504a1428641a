"""The server, its client and the command line: text in, text out."""

import os

# Nothing leaves the machine: ONNX Runtime 1.29 and later report to their maker, with an identifier kept on disk,
# unless this is set before the library is loaded: https://github.com/microsoft/onnxruntime/pull/27379.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
