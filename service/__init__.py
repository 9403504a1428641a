"""The server, its Python client and the command line.

Each package below opens with what it contains; ARCHITECTURE.md shows how they work together.
"""

import os

# Nothing leaves the machine: ONNX Runtime 1.29 and later report to their maker, with an identifier kept on disk,
# unless this is set before the library is loaded: https://github.com/microsoft/onnxruntime/pull/27379.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
