"""Ray's own environments, with a program in uv's place."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from torchyard.base.errors import BuildFailed
from torchyard.executors.ray.ray_environment import RayEnvironments, RayVersion

_UV = """#!/bin/sh
echo "$@" >> "$LOG"
env > "$LOG.environ"
[ -e "$LOG.broken" ] && [ "$2" = pip ] && { echo 'no such version' >&2; exit 1; }
for last; do :; done
case "$2" in
venv) mkdir -p "$last/bin" && touch "$last/bin/python";;
pip) touch "$(dirname "$5")/ray";;
esac
"""


class Uv:
    """Notes what it is asked for, and makes empty files."""

    def __init__(self, folder: Path) -> None:
        self.program = folder / "uv"
        self.program.write_text(_UV)
        self.program.chmod(0o755)
        self.log = folder / "log"
        self.variables = {"LOG": str(self.log), "PATH": "/usr/bin:/bin"}

    @property
    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()


@pytest.fixture
def uv(tmp_path: Path) -> Uv:
    return Uv(tmp_path)


def environments(tmp_path: Path, uv: Uv) -> RayEnvironments:
    return RayEnvironments(tmp_path / "home", str(uv.program), uv.variables)


def test_many_who_ask_at_once_make_it_once(tmp_path: Path, uv: Uv) -> None:
    version = RayVersion("2.60.0", "3.11.7")
    made = []

    def get() -> None:
        made.append(environments(tmp_path, uv).get(version))

    threads = [threading.Thread(target=get) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    folder = tmp_path / "home" / "engines" / "ray-2.60.0-py3.11.7"
    assert {environment.folder for environment in made} == {folder}
    assert len(made) == 8
    assert [line.split()[1] for line in uv.lines] == ["venv", "pip"]
    assert "--python 3.11.7" in uv.lines[0]
    assert uv.lines[1].endswith(" ray==2.60.0")


def test_uv_gets_the_certificates_and_the_proxy_of_pip(tmp_path: Path, uv: Uv) -> None:
    config = tmp_path / "pip.conf"
    config.write_text("[global]\ncert = /etc/our-ca.pem\nproxy = http://proxy.lab:3128\n")
    uv.variables |= {"PIP_CONFIG_FILE": str(config), "PYTHONPATH": "/elsewhere"}
    environments(tmp_path, uv).get(RayVersion("2.60.0", "3.11.7"))
    variables = Path(f"{uv.log}.environ").read_text().splitlines()
    assert "SSL_CERT_FILE=/etc/our-ca.pem" in variables
    assert "HTTPS_PROXY=http://proxy.lab:3128" in variables
    assert not any(line.startswith("PYTHONPATH=") for line in variables)


def test_a_failed_one_is_told_and_made_the_next_time(tmp_path: Path, uv: Uv) -> None:
    broken = Path(f"{uv.log}.broken")
    broken.touch()
    version = RayVersion("2.60.0", "3.11.7", ("default",))
    with pytest.raises(
        BuildFailed, match=r"Ray 2\.60\.0 on Python 3\.11\.7 .*no such version"
    ) as caught:
        environments(tmp_path, uv).get(version)
    assert f"can't be installed on `{socket.gethostname()}`: " in caught.value.message
    assert environments(tmp_path, uv).complete(version) is None
    broken.unlink()
    environment = environments(tmp_path, uv).get(version)
    assert environments(tmp_path, uv).complete(version) == environment
    assert uv.lines[-1].endswith(" ray[default]==2.60.0")


@pytest.mark.parametrize(
    ("ray", "python"), [("2.60.0; rm", "3.11.7"), ("../x", "3.11.7"), ("2.60.0", "3.11")]
)
def test_a_version_is_a_version(ray: str, python: str) -> None:
    with pytest.raises(ValueError, match="is not a version"):
        RayVersion(ray, python)
