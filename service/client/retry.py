"""When a call is sent again: the published policy, what a client may change of it, and pauses between streams.

`protos/service_config.json` is the policy, as gRPC takes it in every language; its numbers stand nowhere else.
"""

import json
import random
from copy import deepcopy
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

PUBLISHED: dict[str, Any] = json.loads(files("protos").joinpath("service_config.json").read_text(encoding="utf-8"))

_POLICY: dict[str, Any] = PUBLISHED["methodConfig"][0]["retryPolicy"]
_JITTER = 0.2  # a pause varies by this much, as gRPC's own do: clients that failed together do not return together


def _seconds(duration: str) -> float:
    return float(duration.removesuffix("s"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When a call is sent again.  A pushback from the server overrides the backoff, and a negative one ends it."""

    max_attempts: int = _POLICY["maxAttempts"]  # the first one included; grpc counts more than 5 as 5
    initial_backoff_s: float = _seconds(_POLICY["initialBackoff"])
    max_backoff_s: float = _seconds(_POLICY["maxBackoff"])
    backoff_multiplier: float = _POLICY["backoffMultiplier"]
    # Each failure costs one token, each success earns back 0.5; below half of them nothing is sent again, so that a
    # server in trouble is not buried under retries.
    throttle_tokens: int = PUBLISHED["retryThrottling"]["maxTokens"]


def service_config(policy: RetryPolicy) -> str:
    """The published service config, as JSON, with this policy's numbers.

    RESOURCE_EXHAUSTED is sent again because Dragoman says with it how long to wait, CANCELLED because proxies and older
    servers that end reset what reaches them too late; a call that its caller cancels is not sent again.
    """
    config = deepcopy(PUBLISHED)
    (method,) = config["methodConfig"]
    method["retryPolicy"] |= {
        "maxAttempts": policy.max_attempts,
        "initialBackoff": f"{policy.initial_backoff_s}s",
        "maxBackoff": f"{policy.max_backoff_s}s",
        "backoffMultiplier": policy.backoff_multiplier,
    }
    if policy.max_attempts == 1:  # grpc refuses a policy of one attempt
        del method["retryPolicy"]
    config["retryThrottling"]["maxTokens"] = policy.throttle_tokens
    return json.dumps(config)


class Backoff:
    """Pauses that grow while nothing succeeds: what gRPC does between attempts, for streams, which it cannot repeat."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._failures = 0

    def next_s(self, *, at_least_s: float = 0.0) -> float:
        """Seconds to wait after one more failure; `at_least_s` is what the server asked for."""
        policy = self._policy
        pause = min(policy.initial_backoff_s * policy.backoff_multiplier**self._failures, policy.max_backoff_s)
        if pause < policy.max_backoff_s:
            self._failures += 1
        return max(at_least_s, pause * random.uniform(1 - _JITTER, 1 + _JITTER))

    def reset(self) -> None:
        """Something succeeded."""
        self._failures = 0
