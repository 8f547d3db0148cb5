"""The real server, as tests/cli has it."""

from __future__ import annotations

from cli.conftest import server, shared_server

__all__ = ["server", "shared_server"]  # fixtures
