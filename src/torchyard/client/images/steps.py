"""What an export of an image says while it works.

Owns: the calls that tell of it, sizes for people.
Leaves: showing them to the command.
"""

from __future__ import annotations


class Steps:
    """What is done with the progress of an export; a `Steps` itself ignores it."""

    def note(self, text: str) -> None:
        """A notice about the image."""

    def begin(self, title: str, size_bytes: int) -> None:
        """A layer is read, or the image pushed."""

    def add(self, size_bytes: int) -> None:
        """So many bytes more of it."""

    def end(self, text: str) -> None:
        """It is done; `text` says with what."""
