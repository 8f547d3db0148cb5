"""An online endpoint on nodes that see nothing of the server's disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from executors import endpoint_on_nodes, remote_site
from torchyard import Client

# By hand: it was written on a machine too busy to run it.
pytestmark = [pytest.mark.end_to_end, pytest.mark.long, pytest.mark.timeout(600)]


def test_an_endpoint_answers_from_nodes_without_the_servers_disk(tmp_path: Path) -> None:
    for name in ("files", "site"):
        (tmp_path / name).mkdir()
    with remote_site.serving(tmp_path / "site", address=lambda node: "127.0.0.1") as site:
        home = site.parts.services.home
        token = (home / "token").read_text().strip()
        with Client(url=site.url, token=token) as client:
            endpoint_on_nodes.check(client, tmp_path / "files")
