"""What the user is told of uv's failures."""

from __future__ import annotations

import pytest

from torchyard.environments.packages import uv

_FETCH = "error: Failed to fetch: https://pypi.org/simple/numpy/\n  cause: client error (Connect)\n"


@pytest.mark.parametrize(
    ("cause", "advice"),
    [
        ("  cause: invalid peer certificate: UnknownIssuer\n", "SSL_CERT_FILE"),
        ("  cause: dns error\n", "check this machine's network"),
    ],
)
def test_a_certificate_of_a_proxy_is_no_fault_of_the_network(cause: str, advice: str) -> None:
    failure = uv.failure(uv.Outcome(2, _FETCH + cause), "the packages can't be resolved")
    assert advice in failure.hint
