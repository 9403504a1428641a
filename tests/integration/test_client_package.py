"""dragoman-client: the client as a package of its own, in a process that finds nothing else of the project."""

import subprocess
import sys
from pathlib import Path

from tests.fakes.server_process import ServerProcess

ROOT = Path(__file__).resolve().parents[2]

TRANSLATES = """
import sys

class Gate:
    allowed = {"dragoman_client", "grpc", "grpc_health", "google", "typing_extensions", *sys.stdlib_module_names}

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in self.allowed:
            raise ModuleNotFoundError(f"{name} is not there", name=name)

sys.meta_path.insert(0, Gate())
from dragoman_client import Client, errors
with Client(sys.argv[1]) as client:
    print(client.translate(["The cat sleeps."], timeout_s=30).translations[0].text)
    try:
        client.translate(["a"], target_language="fr", timeout_s=30)
    except errors.NotFound as error:
        print(error)
"""


def test_client_translates_without_the_server_and_its_libraries(server: ServerProcess, tmp_path: Path) -> None:
    write = "import sys; from pathlib import Path; import backend; backend.write_package(Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", write, tmp_path], cwd=ROOT / "deploy" / "client", check=True)

    command = [sys.executable, "-c", TRANSLATES, server.address]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120.0)

    assert done.stdout.splitlines() == [
        "The cat sleeps.",
        "there is no model for any language to 'fr'; language pairs: en-de",
    ]
