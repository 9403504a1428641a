"""The tools that judge what deploy/ holds; one that is not there skips the test and says where it comes from."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
OF_OPERATORS = {"ScaledObject", "ServiceMonitor", "PrometheusRule"}  # kinds that Kubernetes itself does not know

Resource = dict[str, Any]


def program(tool: str, comes_with: str) -> str:
    """Where it is: on the path, or in this environment."""
    found = shutil.which(tool) or shutil.which(tool, path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip(f"no {tool}: it comes with {comes_with}")
    return found


def judged(tool: str, *arguments: str | Path, comes_with: str, **variables: str) -> str:
    """What the tool says on standard output, when it is content."""
    command = [program(tool, comes_with), *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=110, env={**os.environ, **variables}
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def rendered(overlay: Path) -> list[Resource]:
    """The resources of a kustomization."""
    text = judged("kubectl", "kustomize", overlay, comes_with="Kubernetes; no cluster is needed")
    return list(yaml.safe_load_all(text))


def problems(resources: Sequence[Resource]) -> list[str]:
    """What Kubernetes' own schema has against them, unknown fields included; kinds of operators are left out."""
    if importlib.util.find_spec("kubernetes_validate") is None:
        pytest.skip("no kubernetes-validate: make deploy-check installs it")
    import kubernetes_validate

    found = []
    for resource in resources:
        if resource["kind"] in OF_OPERATORS:
            continue
        try:
            kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)
        except kubernetes_validate.ValidationError as error:
            found.append(f"{resource['kind']}: {error}")
    return found


def of_kind(resources: Sequence[Resource], kind: str) -> dict[str, Resource]:
    """Those of one kind, by name."""
    return {resource["metadata"]["name"]: resource for resource in resources if resource["kind"] == kind}


def pod_labels(deployment: Resource) -> dict[str, str]:
    """The labels of its pods."""
    labels: dict[str, str] = deployment["spec"]["template"]["metadata"]["labels"]
    return labels


def jobs_not_scraped(resources: Sequence[Resource]) -> set[str]:
    """Values of `job` that alert rules ask for and no scrape has.

    The operator gives targets the value of the Service's label `jobLabel` as `job`, without that the Service's name.
    """
    (monitor,) = of_kind(resources, "ServiceMonitor").values()
    spec, ports = monitor["spec"], {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]}
    services = [
        service["metadata"]
        for service in of_kind(resources, "Service").values()
        if selects(spec["selector"]["matchLabels"], service["metadata"]["labels"])
        and ports & {port["name"] for port in service["spec"]["ports"]}
    ]
    scraped = {service["labels"].get(spec.get("jobLabel"), service["name"]) for service in services}
    rules = yaml.safe_dump([rule["spec"] for rule in of_kind(resources, "PrometheusRule").values()])
    return set(re.findall(r'\bjob="([^"]+)"', rules)) - scraped


def selects(selector: dict[str, str], labels: dict[str, str]) -> bool:
    """Whether pods with these labels are meant."""
    return selector.items() <= labels.items()
