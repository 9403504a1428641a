"""What is said of a connection that does not come about; tests/integration/test_tls_rpc.py has real ones."""

import pytest

from service.client.failures import explained

FAILING = "connections to all backends failing; last error: "


@pytest.mark.parametrize(
    ("said", "helps"),
    [
        (f"{FAILING}UNKNOWN: Tls handshake failed: OPENSSL_internal:WRONG_VERSION_NUMBER: OK", "has no TLS there"),
        (f"{FAILING}UNIMPLEMENTED: Failed parsing HTTP/2 (Expected SETTINGS frame)", "perhaps that of HTTP"),
        ("Method not found!", "perhaps it is the admin port"),
    ],
)
def test_words_of_grpc_come_with_what_helps(said, helps):
    assert explained(said).startswith(said)
    assert helps in explained(said)


@pytest.mark.parametrize("said", ["Socket closed", f"{FAILING}UNKNOWN: Connection refused", ""])
def test_a_connection_that_was_lost_and_a_reason_that_speaks_for_itself_stay_as_they_are(said):
    assert explained(said) == said
