"""Nothing leaves the machine: ONNX Runtime's own reports to its maker are off wherever we load it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Without the switch, ONNX Runtime makes an identifier here when a session is made, or says that it cannot.
LOAD = """
import onnx
from onnx import TensorProto, helper
import {module}
import onnxruntime
value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [value],
                          [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
"""


@pytest.mark.parametrize("module", ["service.engine.cpu.runner", "export.runner"])
def test_no_identifier_is_made_when_a_session_is(module, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name not in {"ORT_DISABLE_TELEMETRY", "CI"}}
    environment |= {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}

    done = subprocess.run(
        [sys.executable, "-c", LOAD.format(module=module)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.rglob("*")) == []
