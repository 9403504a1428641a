"""The published retry policy and the pauses between streams."""

import json
from typing import Any

import pytest

from service.client.retry import PUBLISHED, Backoff, RetryPolicy, service_config


def test_defaults_are_the_published_policy():
    assert json.loads(service_config(RetryPolicy())) == _with_floats(PUBLISHED)


def test_published_policy_is_what_operators_are_told():
    (method,) = PUBLISHED["methodConfig"]
    policy = method["retryPolicy"]

    assert (policy["maxAttempts"], policy["maxBackoff"], method["waitForReady"]) == (5, "5s", True)
    assert {"UNAVAILABLE", "RESOURCE_EXHAUSTED"} <= set(policy["retryableStatusCodes"])
    assert PUBLISHED["retryThrottling"] == {"maxTokens": 100, "tokenRatio": 0.5}


def test_streams_are_not_repeated_by_grpc():
    (method,) = PUBLISHED["methodConfig"]

    assert [name["method"] for name in method["name"]] == ["Translate", "ListModels"]


def test_a_client_s_own_numbers_replace_the_published_ones():
    config = json.loads(service_config(RetryPolicy(max_attempts=2, max_backoff_s=0.5, throttle_tokens=7)))

    policy = config["methodConfig"][0]["retryPolicy"]
    assert (policy["maxAttempts"], policy["maxBackoff"]) == (2, "0.5s")
    assert config["retryThrottling"]["maxTokens"] == 7


def test_one_attempt_needs_no_policy():
    assert "retryPolicy" not in json.loads(service_config(RetryPolicy(max_attempts=1)))["methodConfig"][0]


def test_pauses_grow_to_the_largest_and_begin_anew_after_a_success():
    backoff = Backoff(RetryPolicy(initial_backoff_s=1.0, backoff_multiplier=2.0, max_backoff_s=5.0))

    pauses = [backoff.next_s() for _ in range(2_000)]
    backoff.reset()

    for pause, middle in zip(pauses, [1.0, 2.0, 4.0, 5.0, 5.0], strict=False):
        assert pause == pytest.approx(middle, rel=0.2001)
    assert max(pauses) <= 6.0
    assert backoff.next_s() <= 1.2


def test_pushback_is_the_shortest_pause():
    assert Backoff(RetryPolicy(initial_backoff_s=0.1)).next_s(at_least_s=3.0) == 3.0


def _with_floats(config: dict[str, Any]) -> dict[str, Any]:
    """With durations as Python writes them: 5.0s for 5s."""
    policy = config["methodConfig"][0]["retryPolicy"]
    durations = {name: f"{float(policy[name].removesuffix('s'))}s" for name in ("initialBackoff", "maxBackoff")}
    return config | {"methodConfig": [config["methodConfig"][0] | {"retryPolicy": policy | durations}]}
