"""Machine, commit and versions: no figure is worth anything without them."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from service.engine.choice import INT8_FLAGS, cpu_flags

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("onnxruntime", "onnxruntime-gpu", "ctranslate2", "numpy", "torch")


def describe(cpus: int) -> dict[str, Any]:
    """Return what belongs into the JSON line.

    Args:
        cpus: what the benchmark uses.
    """
    return {
        "cpu": cpu_model(),
        "int8_instructions": [flag for flag in INT8_FLAGS if flag in cpu_flags()],
        "cpus": cpus,
        "load_average": round(os.getloadavg()[0], 2),  # before the benchmark: other work on the machine
        "python": platform.python_version(),
        "commit": _git("rev-parse", "--short", "HEAD") or "unknown",
        "uncommitted_changes": bool(_git("status", "--porcelain", "--", "service", "model", "export")),
        **{name: found for name in PACKAGES if (found := _version(name))},
    }


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the CPU's name; elsewhere than on Linux, its architecture."""
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
