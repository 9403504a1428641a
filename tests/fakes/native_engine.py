"""Where tests of the native engine can run."""

import pytest

from service.engine.choice import library_problem

needs_native_engine = pytest.mark.skipif(bool(library_problem()), reason=f"no native engine: {library_problem()}")
