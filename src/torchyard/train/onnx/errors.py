"""What an export refuses."""

from __future__ import annotations


class ExportError(Exception):
    """The module can't be exported, or its ONNX file computes something else.

    `hint` is the next step; empty where none is known.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message
