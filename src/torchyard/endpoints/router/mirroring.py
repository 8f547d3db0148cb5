"""Copies of requests for deployments that are tried out.

Owns: a copy's call, whose answer nobody gets.
Leaves: which requests are copied to traffic.py, slots to deployments.py.
Always: a copy is sent after its original, only where a slot is free, and only of a body that was
whole by then; neither its answer nor its failure reaches the client.
"""

from __future__ import annotations

from torchyard.endpoints.router.calls import Call, Headers
from torchyard.endpoints.router.errors import Refusal


class MirrorCall(Call):
    """
    Args:
        original: not sent yet, with its whole body.
    """

    def __init__(self, original: Call) -> None:
        super().__init__()
        self.head = original.head
        self.parts = list(original.parts)
        self.length = original.length
        self.is_head_request = original.is_head_request

    def answered(self, status: int, reason: bytes, headers: Headers, body: bytes) -> None:
        self.ended()

    def begun(self, status: int, reason: bytes, headers: Headers, length: int | None) -> None:
        pass

    def piece(self, data: bytes) -> None:
        pass

    def ended(self) -> None:
        self.is_done = True
        self.stop_timer()

    def upgraded(self, reason: bytes, headers: Headers, data: bytes) -> None:
        self.cancel()

    def refused(self, refusal: Refusal) -> None:
        self.ended()
