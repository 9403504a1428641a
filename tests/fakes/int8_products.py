"""What a test needs to know of the CPU it runs on."""

import pytest

from service.engine.cpu.instructions import cpu_flags, multiplies_int8_exactly

HAS_INT8_PRODUCTS = multiplies_int8_exactly(cpu_flags())
needs_int8_products = pytest.mark.skipif(not HAS_INT8_PRODUCTS, reason="this CPU has no int8 dot products")
