"""What the server cannot do yet, and the tests that wait for it.  Delete an entry, and its tests run."""

import pytest

MISSING = {
    "lifecycle": "/healthz that fails after lifecycle.unready_exit_s",
}


def needs(*features: str) -> pytest.MarkDecorator:
    """Skips a test until the server has all of these."""
    missing = [MISSING[feature] for feature in features if feature in MISSING]
    return pytest.mark.skipif(bool(missing), reason=f"needs {'; '.join(missing)}")
