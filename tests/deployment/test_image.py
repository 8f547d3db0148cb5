"""The image alone, as `docker run` starts it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from deployment.conftest import IMAGE, Podman
from eventually import eventually

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900)]
_HOME = "test-home"


@pytest.fixture
def server(podman: Podman) -> Iterator[str]:
    """A container whose server listens; its home is a volume."""
    name = _start(podman, "test-server")
    yield name
    podman("rm", "--force", "--time=0", "--ignore", name)
    podman("volume", "rm", "--force", _HOME)


def _start(podman: Podman, name: str) -> str:
    podman(
        "run", "--detach", f"--name={name}", f"--volume={_HOME}:/var/lib/torchyard",
        "--env=TORCHYARD_JOBS_AS_SERVER_USER=1", "--publish=8766:8766", IMAGE,
    )  # fmt: skip
    podman.await_health(name)
    return name


def _image(podman: Podman) -> dict[str, Any]:
    described: dict[str, Any] = json.loads(podman("inspect", IMAGE))[0]
    return described


def test_it_runs_as_an_ordinary_user_over_a_volume_with_a_health_check(podman: Podman) -> None:
    image = _image(podman)
    config = image["Config"]
    assert config["User"] == "10001"
    assert list(config["Volumes"]) == ["/var/lib/torchyard"]
    assert image["Healthcheck"]["Test"] == ["CMD", "yard", "server", "status", "-o", "none"]


def test_it_brings_no_compiler_git_node_or_installer_of_its_own(podman: Podman) -> None:
    names = " -o ".join(f"-name '{name}'" for name in ("gcc*", "cc", "git", "node", "pip"))
    look = f"find /usr /opt -type f -perm /111 \\( {names} \\)"
    found = podman("run", "--rm", "--user=0", IMAGE, "sh", "-c", look)
    assert found == ""
    assert (
        podman("run", "--rm", IMAGE, "sh", "-c", "ls -A /source /wheel /build 2> /dev/null; true")
        == ""
    )


def test_what_it_adds_to_its_base_stays_below_200_mb(podman: Podman) -> None:
    base = json.loads(podman("inspect", "localhost/test-python-base:1"))[0]["Size"]
    assert _image(podman)["Size"] - base < 200e6


def test_it_does_not_listen_before_somebody_accepts_what_that_means(podman: Podman) -> None:
    done = podman.run("podman", "run", "--rm", IMAGE)
    assert done.returncode == 2
    assert "--jobs-as-server-user" in done.stderr


def test_its_first_process_reaps_what_others_leave(podman: Podman, server: str) -> None:
    # The subshell's child is handed to the first process, and ends there.
    podman("exec", server, "sh", "-c", "(sleep 0.1 & echo $! > /tmp/orphan)")
    pid = podman("exec", server, "cat", "/tmp/orphan")
    gone = f"! kill -0 {pid} 2> /dev/null"
    eventually(
        lambda: podman.run("podman", "exec", server, "sh", "-c", gone).returncode == 0,
        "the orphaned process is reaped",
    )


def test_a_stopped_server_ends_in_order_and_its_home_stays(podman: Podman, server: str) -> None:
    podman("exec", server, "yard", "user", "create", "ada", "--no-token")
    podman("stop", "--time=60", server)
    # Had SIGTERM not been passed on in time, SIGKILL would have ended it, with 137.
    assert podman("inspect", server, "--format={{.State.ExitCode}}") == "0"
    podman("rm", server)
    again = _start(podman, server)
    users = json.loads(podman("exec", again, "yard", "user", "list", "-o", "json"))
    assert "ada" in [user["name"] for user in users]
