"""Ports that are kept for a job."""

from __future__ import annotations

import sys

import pytest

from torchyard.shared.failures import Failure
from torchyard.worker.preflight.ports import PortMark, hold_port

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux's abstract addresses")


def test_a_port_stays_taken_while_another_node_of_its_job_runs() -> None:
    mark = PortMark()
    reservation = hold_port(6960, 6980)
    mark.set(reservation.port)
    # As when node 0's worker is killed: its ranks listen no more, and nothing holds the port.
    reservation.close()
    try:
        with pytest.raises(Failure, match="no port"):
            hold_port(reservation.port, reservation.port)
        following = hold_port(reservation.port, 6999)
        assert following.port > reservation.port
        following.close()
    finally:
        mark.close()
