"""`uvx --from torchyard yard node join`: a node on a machine where torchyard is not installed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import uv

from ray.ray_cluster import lend_environment, wait_until
from ray.test_joining import Site
from ray.test_joining import site as site
from torchyard.executors.ray.ray_environment import RayEnvironment

pytestmark = [pytest.mark.ray, pytest.mark.timeout(1800)]
_ROOT = Path(__file__).resolve().parents[2]


def test_a_machine_joins_by_uvx_from_a_wheel(
    site: Site, ray_environment: RayEnvironment, tmp_path: Path
) -> None:
    uv_program = uv.find_uv_bin()
    building = [uv_program, "build", "--quiet", "--wheel", "--out-dir", str(tmp_path), str(_ROOT)]
    subprocess.run(building, check=True, stdin=subprocess.DEVNULL)
    (wheel,) = tmp_path.glob("*.whl")

    # Nothing of this machine's torchyard is in its variables, its home folder or its path.
    home = site.folder / "far"
    lend_environment(home / "node", ray_environment)
    inherited = (
        "UV_CACHE_DIR",
        "UV_DEFAULT_INDEX",
        "PIP_INDEX_URL",
        "SSL_CERT_FILE",
        "HTTPS_PROXY",
    )
    environ = {
        **{name: os.environ[name] for name in inherited if name in os.environ},
        "PATH": "/usr/bin:/bin",
        "HOME": str(home),
        "TORCHYARD_HOME": str(home),
        "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR") or _uv_cache(uv_program),
    }
    words = [uv_program, "tool", "run", "--python", sys.executable, "--from", str(wheel)]
    words += ["yard", "node", "join", site.url, "--name", "far"]
    log = home / "agent.log"
    with open(log, "ab") as output:
        agent = subprocess.Popen(
            [*words, "--token-file", str(site.home / "token")],
            env=environ,
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        wait_until(lambda: "Joined" in log.read_text(), 200, "it has joined")
        assert site.states() == {"far": "joined"}
        # uv runs it from its cache: no tool is installed.
        assert not any(each.is_dir() for each in home.glob(".local/share/uv/tools/*"))
        site.submit("far", 1)
        site.wait_for("far", "Completed")
        assert "rank 0 of 1" in site.yard("job", "stream", "-n", "far")
    finally:
        agent.send_signal(signal.SIGINT)
        code = agent.wait(120)
    assert code == 0 and "Left: this machine takes no jobs any more." in log.read_text()


def _uv_cache(uv_program: str) -> str:
    """This machine's, so that what it has is not fetched again."""
    answer = subprocess.run(
        [uv_program, "cache", "dir"], capture_output=True, text=True, check=True
    )
    return answer.stdout.strip()
