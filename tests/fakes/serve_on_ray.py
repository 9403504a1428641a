"""deploy/ray/serve.yaml on a Ray cluster of this machine: its driver, a process, and what is seen of its replicas.

The driver, `python -m tests.fakes.serve_on_ray`, deploys for each line of its input, such as
{"num_replicas": 2, "settings": {}}, says {"port": ...} when that serves, and ends with its input.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import psutil

from tests.fakes.server_process import ROOT, ServerProcess

SERVE_YAML = ROOT / "deploy" / "ray" / "serve.yaml"
_PORTS_FILE = "lifecycle.ports_file="


@dataclass(frozen=True, slots=True)
class Deployed:
    """An application that serves."""

    driver: "subprocess.Popen[str]"
    address: str

    def redeploy(self, num_replicas: int, settings: Mapping[str, object]) -> None:
        """Return when Serve has so many replicas with these settings."""
        _tell(self.driver, num_replicas, settings)
        _hear(self.driver)

    def servers(self) -> list[ServerProcess]:
        """The servers of its replicas that serve now."""
        found = []
        for child in psutil.Process(self.driver.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess, FileNotFoundError):
                words = child.cmdline()
                if "service.ray_serve" in words:
                    (file,) = (word.removeprefix(_PORTS_FILE) for word in words if word.startswith(_PORTS_FILE))
                    ports = json.loads(Path(file).read_text(encoding="utf-8"))
                    process = cast("Any", child)
                    found.append(ServerProcess(process, Path(os.devnull), ports["grpc_port"], ports["http_port"]))
        return found

    def pids(self) -> set[int]:
        """The process ids of those servers."""
        return {server.process.pid for server in self.servers()}


@contextmanager
def deployed(num_replicas: int, settings: Mapping[str, object], environment: Mapping[str, str]) -> Iterator[Deployed]:
    """A cluster of its own, with the application on it."""
    program = [sys.executable, "-m", "tests.fakes.serve_on_ray"]
    with subprocess.Popen(
        program, cwd=ROOT, env=dict(environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as driver:
        try:
            _tell(driver, num_replicas, settings)
            yield Deployed(driver, f"127.0.0.1:{_hear(driver)}")
        finally:
            assert driver.stdin
            driver.stdin.close()
            driver.wait(60)


def _tell(driver: "subprocess.Popen[str]", num_replicas: int, settings: Mapping[str, object]) -> None:
    assert driver.stdin
    print(json.dumps({"num_replicas": num_replicas, "settings": settings}), file=driver.stdin, flush=True)


def _hear(driver: "subprocess.Popen[str]") -> int:
    assert driver.stdout
    for line in driver.stdout:
        if line.startswith('{"port"'):
            port: int = json.loads(line)["port"]
            return port
    raise AssertionError(f"the driver ended with status {driver.wait(60)}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _adapt(config: dict[str, Any], num_replicas: int, settings: Mapping[str, object]) -> None:
    """Change the file's content for this machine: small replicas, as many as are wanted, whose end is noticed soon."""
    (application,) = config["applications"]
    (deployment,) = application["deployments"]
    del deployment["autoscaling_config"]
    deployment |= {"num_replicas": num_replicas, "ray_actor_options": {"num_cpus": 0.1}, "health_check_period_s": 1.0}
    application["args"]["settings"] |= {"engine.num_engines": 1, **settings}


def main() -> None:
    """The driver."""
    import ray
    import yaml
    from ray import serve
    from ray.serve.context import _get_global_client
    from ray.serve.schema import ServeDeploySchema

    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    port = _free_port()
    content = SERVE_YAML.read_text(encoding="utf-8")
    config = yaml.safe_load(content)
    serve.start(
        proxy_location="HeadOnly",
        http_options={**config["http_options"], "port": _free_port()},
        grpc_options={**config["grpc_options"], "port": port},
    )
    client: Any = _get_global_client()
    shut_down: Callable[[], None] = serve.shutdown  # untyped there
    for line in sys.stdin:
        config = yaml.safe_load(content)
        _adapt(config, **json.loads(line))
        client.deploy_apps(ServeDeploySchema.model_validate(config), _blocking=True)
        print(json.dumps({"port": port}), flush=True)
    shut_down()


if __name__ == "__main__":
    main()
