"""A client of an old contract, run as a process of its own: two versions of one proto do not fit into one process.

python old_client.py PROTO ADDRESS    reads texts from standard input, one a line, and prints what came back as JSON
"""

import importlib
import json
import shutil
import sys
import tempfile
from pathlib import Path

import grpc
from google.protobuf import json_format
from grpc_tools import protoc

BEAM_SIZE, MAX_TARGET_TOKENS = 4, 16


def main(proto: Path, address: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        shutil.copyfile(proto, Path(directory) / "contract.proto")
        assert protoc.main(["", f"-I{directory}", f"--python_out={directory}", f"--grpc_python_out={directory}",
                            "contract.proto"]) == 0  # fmt: skip
        sys.path.insert(0, directory)
        pb, stubs = importlib.import_module("contract_pb2"), importlib.import_module("contract_pb2_grpc")
    options = pb.TranslateOptions(beam_size=BEAM_SIZE, max_target_tokens=MAX_TARGET_TOKENS)
    request = pb.TranslateRequest(
        texts=sys.stdin.read().splitlines(), source_language="en", target_language="de", options=options
    )
    with grpc.insecure_channel(address) as channel:
        stub = stubs.TranslationServiceStub(channel)
        messages = {
            "reply": stub.Translate(request, timeout=20),
            "models": stub.ListModels(pb.ListModelsRequest(), timeout=20),
        }
    as_dict = {name: json_format.MessageToDict(message) for name, message in messages.items()}
    print(json.dumps(as_dict))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
