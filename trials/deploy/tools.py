"""The tools that judge what deploy/ holds; one that is not there skips the test and says where it comes from."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
CHART = DEPLOY / "helm" / "dragoman"
OF_OPERATORS = {"ScaledObject", "ServiceMonitor", "PrometheusRule"}  # kinds that Kubernetes itself does not know
PROMTOOL_COMES_WITH = "the Debian package prometheus"
HELM_COMES_WITH = "Helm, version 3 or 4"

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


def check_query(query: str, series: dict[str, str], expected: dict[str, float], directory: Path) -> None:
    """Fail if the query does not give these values, by labels, of these series after ten minutes."""
    samples = [{"labels": labels, "value": value} for labels, value in expected.items()]
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": query, "eval_time": "10m", "exp_samples": samples}],
    }
    file = directory / "query.yml"
    file.write_text(yaml.safe_dump({"tests": [test]}))
    judged("promtool", "test", "rules", file, comes_with=PROMTOOL_COMES_WITH)


def helm_template(*values: str, files: Sequence[Path] = (), release: str = "dragoman") -> list[Resource]:
    """The chart's resources with these values."""
    set_them = [word for file in files for word in ("--values", str(file))]
    set_them += [word for value in values for word in ("--set-string" if value.startswith("env.") else "--set", value)]
    text = judged("helm", "template", release, CHART, "--namespace", "dragoman", *set_them, comes_with=HELM_COMES_WITH)
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
    return {resource["metadata"]["name"]: resource for resource in resources if resource["kind"] == kind}
