"""How calls are spread over replicas.  The command line imports this module, and nothing here imports NumPy."""

from enum import StrEnum


class Balancer(StrEnum):
    """Who gets the next call."""

    LEAST_REQUEST = "least-request"  # the replica with the fewest calls outstanding
    TWO_CHOICES = "two-choices"  # of two at random, the one with fewer; Envoy's least-request
    RANDOM = "random"  # as many clients that each take turns
