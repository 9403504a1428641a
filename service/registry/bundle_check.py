"""What a bundle must be before it may serve, as far as that can be told without running its graphs.

The part that a crafted file could crash, `check_in_engine`, runs inside the engine process, before anything of the
bundle's is opened in the front process.  Imports little: an engine process loads this too.
"""

from model.bundle import Bundle, BundleError
from model.tokenizer import Tokenizer
from service.engine.spec import EngineSpec
from service.registry.repository import Candidate

IN_ENGINE = f"{__name__}:check_in_engine"  # for `EngineSpec.preflight`


def check_identity(bundle: Bundle, candidate: Candidate) -> None:
    """Refuse a bundle that is not the model its directory says.

    Raises:
        BundleError: name or version differ.
    """
    manifest = bundle.manifest
    for what, wanted, found in (
        ("name", candidate.name, manifest.name),
        ("version", candidate.version, manifest.version),
    ):
        if wanted and found != wanted:
            raise BundleError(f"{candidate.directory} has a manifest of {what} {found[:80]!a}; rename one of the two")


def load_tokenizer(bundle: Bundle) -> Tokenizer:
    """The bundle's tokenizer.

    Raises:
        ValueError: it is no tokenizer, or not this model's.
    """
    tokenizer = Tokenizer.load(bundle.tokenizer_path)
    rows = bundle.manifest.config.vocab_size
    if tokenizer.vocab_size != rows:
        pieces = f"{bundle.tokenizer_path} has {tokenizer.vocab_size} pieces"
        raise ValueError(f"{pieces}, the model's embedding has {rows} rows; restore the file or export again")
    return tokenizer


def check_in_engine(spec: EngineSpec) -> None:
    """Make sure, in the engine's process, that the bundle is still the one that was chosen, and try its tokenizer.

    Raises:
        ValueError: it has been replaced, or its tokenizer cannot be used.
    """
    bundle = Bundle.load(spec.bundle_dir, verify=False, manifest_sha256=spec.manifest_sha256)
    load_tokenizer(bundle).encode("a")
