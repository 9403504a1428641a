"""Checks a bundle before it may serve, without running its graphs.

Files that could crash their parser, such as the tokenizer, are opened in an engine process first (`check_in_engine`).
ONNX Runtime itself refuses a graph that reads a file outside its own directory, and `BundleChecker` refuses every file
beside a graph that has no checksum in the manifest.  An engine process imports this module, so it imports little.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from model.bundle import MANIFEST_NAME, Bundle, BundleError
from model.manifest import GPU_PRECISION, TokenizerKind
from model.tokenizer import SupportsTokens
from model.tokenizer import load_tokenizer as open_tokenizer
from service.engine.cuda.device import DeviceChoice, choose_device
from service.engine.wire import EngineSpec
from service.models.repository import BundleCandidate

if TYPE_CHECKING:
    from service.config import ServerConfig

IN_ENGINE = f"{__name__}:check_in_engine"  # for `EngineSpec.preflight`


class BundleChecker:
    """Opens the bundle of a candidate if it may serve with these settings; callable from any thread."""

    def __init__(self, config: "ServerConfig") -> None:
        self._device = config.engine.device
        self._precision = config.engine.precision

    def __call__(self, candidate: BundleCandidate) -> Bundle:
        """Return the checked bundle, or raise BundleError."""
        bundle = Bundle.load(candidate.directory)
        check_identity(bundle, candidate)
        if device_for(bundle, self._device).device == "cpu":
            bundle.variant(self._precision)  # raises if there is none
        _require_all_listed(bundle)
        return bundle


def check_until_good(
    check: Callable[[BundleCandidate], Bundle], candidates: Sequence[BundleCandidate]
) -> dict[BundleCandidate, Bundle | Exception]:
    """Check candidates in their order until one is good; return the bundle or the error of each one checked."""
    checked: dict[BundleCandidate, Bundle | Exception] = {}
    for candidate in candidates:
        try:
            checked[candidate] = check(candidate)
            break
        except (ValueError, OSError) as error:
            checked[candidate] = error
    return checked


def check_identity(bundle: Bundle, candidate: BundleCandidate) -> None:
    """Raise BundleError unless the bundle is the model and version that its directory is named after."""
    manifest = bundle.manifest
    for what, wanted, found in (
        ("name", candidate.name, manifest.name),
        ("version", candidate.version, manifest.version),
    ):
        if wanted and found != wanted:
            raise BundleError(f"{candidate.directory} has a manifest of {what} {found[:80]!a}; rename one of the two")


def _require_all_listed(bundle: Bundle) -> None:
    """Refuse files without a checksum where graphs can reach them: in the directory of a graph and below it."""
    listed = {bundle.path(name) for name in (*bundle.manifest.files, MANIFEST_NAME)}
    for directory in {path.parent for path in listed if path.suffix == ".onnx"}:
        for path in sorted(directory.rglob("*")):
            if path not in listed and (path.is_symlink() or not path.is_dir()):
                raise BundleError(f"{path} lies beside the graphs and the manifest does not list it; remove it")


def device_for(bundle: Bundle, setting: str) -> DeviceChoice:
    """Choose where a bundle's graphs run; for `auto`, the first call takes a process and a second."""
    return _choose_device(setting, has_graphs=GPU_PRECISION in bundle.manifest.variants)


_choose_device = lru_cache(choose_device)


def load_tokenizer(bundle: Bundle) -> SupportsTokens:
    """Return the bundle's tokenizer, or raise ValueError."""
    files, config = bundle.manifest.tokenizer, bundle.manifest.config
    tokenizer = open_tokenizer(bundle.directory, files).between(*bundle.manifest.languages)
    rows = config.vocab_size
    is_complete = files.kind is TokenizerKind.SHARED  # other models may have rows that no text reaches
    if tokenizer.vocab_size > rows or (is_complete and tokenizer.vocab_size < rows):
        pieces = f"{bundle.tokenizer_path} has {tokenizer.vocab_size} pieces"
        raise ValueError(f"{pieces}, the model's embedding has {rows} rows; restore the file or export again")
    return tokenizer


def check_in_engine(spec: EngineSpec) -> None:
    """Raise ValueError, in the engine process, if the bundle has been replaced or its tokenizer cannot be used."""
    bundle = Bundle.load(spec.bundle_dir, verify=False, manifest_sha256=spec.manifest_sha256)
    load_tokenizer(bundle).encode("a")
