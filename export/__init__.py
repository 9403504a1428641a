"""A trained checkpoint becomes a bundle: graphs drawn from the weights, quantised, compared with PyTorch."""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # as in service/__init__.py: nothing leaves the machine
