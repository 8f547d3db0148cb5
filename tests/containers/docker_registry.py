"""Docker's own registry on this machine."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator

import pytest
import yaml

from end_to_end.yard_under_test import wait_until


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Docker's own registry on this machine; the answer is its address."""
    program = shutil.which("docker-registry")
    if program is None:
        if os.environ.get("TORCHYARD_TEST_SERVICES") == "required":
            pytest.fail("docker-registry is not here: apt-get install docker-registry")
        pytest.skip("docker-registry is not here")
    folder = tmp_path_factory.mktemp("registry")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    storage = {"filesystem": {"rootdirectory": str(folder / "storage")}}
    document = {"version": 0.1, "storage": storage, "http": {"addr": address}}
    (folder / "config.yml").write_text(yaml.safe_dump(document))
    with subprocess.Popen(
        [program, "serve", str(folder / "config.yml")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        wait_until(lambda: _answers(address), 60, "the registry answers")
        yield address
        process.terminate()


def _answers(address: str) -> bool:
    host, _, port = address.partition(":")
    with socket.socket() as connection:
        return connection.connect_ex((host, int(port))) == 0
