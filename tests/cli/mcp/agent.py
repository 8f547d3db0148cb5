"""An agent's program: the official client of the protocol, over stdio, with `yard mcp` behind it.

Owns: starting it, its tools as functions.
Leaves: the server that `yard mcp` asks to the tests.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client, StdioServerParameters, stdio_client
from mcp.types import CallToolResult, TextContent, Tool

# That of clients before the protocol's version 2026-07-28, and that of the newest.
Handshake = Literal["legacy", "auto"]


@dataclass(frozen=True)
class Agent:
    _portal: BlockingPortal
    _client: Client

    @property
    def instructions(self) -> str:
        return self._client.instructions or ""

    def tools(self) -> dict[str, Tool]:
        return {tool.name: tool for tool in self._portal.call(self._client.list_tools).tools}

    def begin(self, tool: str, **arguments: Any) -> Future[Any]:
        """Call a tool, and go on meanwhile."""
        return self._portal.start_task_soon(self._client.call_tool, tool, arguments)

    def result(self, tool: str, **arguments: Any) -> CallToolResult:
        result = self._portal.call(self._client.call_tool, tool, arguments)
        assert isinstance(result, CallToolResult)
        return result

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The answer, which its text has as well."""
        result = self.result(tool, **arguments)
        (content,) = result.content
        assert isinstance(content, TextContent) and not result.is_error, content
        answer: dict[str, Any] = result.structured_content
        assert json.loads(content.text) == answer
        return answer

    def refused(self, tool: str, **arguments: Any) -> str:
        """The text of the error."""
        result = self.result(tool, **arguments)
        (content,) = result.content
        assert isinstance(content, TextContent) and result.is_error, content
        assert "Traceback" not in content.text
        assert content.text.startswith(f"error: {result.structured_content['error']['message']}")
        return content.text


@contextmanager
def running_agent(
    variables: Mapping[str, str], *options: str, handshake: Handshake = "legacy", cwd: Path
) -> Iterator[Agent]:
    """Start `yard mcp`; at the end nothing stands on its standard error."""
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "torchyard.cli.main", "mcp", *options],
        env=dict(variables),
        cwd=cwd,
    )
    with tempfile.TemporaryFile("w+") as errors:
        client = Client(stdio_client(parameters, errors), mode=handshake)
        with (
            start_blocking_portal() as portal,
            portal.wrap_async_context_manager(client) as entered,
        ):
            yield Agent(portal, entered)
        errors.seek(0)
        assert errors.read() == ""
