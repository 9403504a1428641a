"""The GPU's engine on a GPU that only counts: the real CUDA provider and runner, libraries of our own under them.

`build.py` makes libraries that stand in for CUDA, cuBLAS, cuDNN and the driver.  Their memory is the host's and their
kernels compute nothing, but every launch, copy, synchronisation and cuDNN plan is counted (`counters.py`), and what a
recorded step must not do is noticed.  So what a step costs can be held on machines without a GPU; what it computes
cannot: tokens come from the same graphs on the CPU (`twin.py`).  `make test-gpu-counted` builds and runs all of it.
"""
