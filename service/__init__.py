"""The server, its client and the command line: text in, text out."""

import os

# Nothing leaves the machine. ONNX Runtime 1.29 and later send usage data to their maker, and keep an identifier on disk,
# unless this is set before the library is loaded: https://github.com/microsoft/onnxruntime/pull/27379.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
