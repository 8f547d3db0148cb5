"""torchyard's own image, built and run by a podman of the test session's own.

Owns: podman's storage, a network namespace for all of its containers, the images.
Leaves: which wheels the images are made of to wheelhouse.py, the base to
containers/base_image.py.
Always: nothing is pulled, and the machine's own network is not changed; at the end no process,
container, image, volume, network or folder is left, also after a failure.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from containers import base_image, own_podman
from deployment.wheelhouse import Wheelhouse
from end_to_end import namespaces
from end_to_end.yard_under_test import REPOSITORY
from eventually import PATIENCE, eventually
from required import missing

IMAGE = "localhost/test-torchyard:1"
POSTGRES = "localhost/test-postgres:1"
_HERE = Path(__file__).parent
_PACKAGES = ("python3", "python3-venv", "postgresql")
# Packages come from /wheels, and from nowhere else.
_SOURCES = {
    "/etc/uv/uv.toml": 'no-index = true\nfind-links = ["/wheels"]\n',
    "/etc/pip.conf": "[global]\nno-index = true\nfind-links = /wheels\n",
}


@dataclass(frozen=True)
class Podman:
    """It and its containers, in a network namespace of their own."""

    folder: Path
    namespace: str
    variables: dict[str, str]
    wheels: Wheelhouse

    def run(self, *words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run any program beside the containers: it reaches the ports that they publish."""
        return subprocess.run(
            ["nsenter", f"--net=/run/netns/{self.namespace}", *words],
            env={**os.environ, **self.variables, **variables},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600 * PATIENCE,
        )  # fmt: skip

    def __call__(self, *words: str | Path) -> str:
        """What podman prints."""
        done = self.run("podman", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    @property
    def mounts(self) -> list[str]:
        """Volumes by which uv and pip in a container take packages from the wheels."""
        places = {place: self.folder / Path(place).name for place in _SOURCES}
        places["/wheels"] = self.wheels.folder
        return [f"{source}:{place}:ro" for place, source in places.items()]

    def build(self, context: Path, tag: str, base: str, *options: str | Path) -> None:
        volumes = [f"--volume={mount}" for mount in self.mounts]
        words = ["build", "--quiet", "--format=docker", "--network=none", f"--tag={tag}"]
        self(*words, *volumes, f"--build-arg=BASE={base}", *options, context)

    def await_health(self, container: str) -> None:
        """Wait until it is healthy. Without systemd podman has no timer, so its check is run here.

        The check is the container's own.
        """
        eventually(
            lambda: self.run("podman", "healthcheck", "run", container).returncode == 0,
            f"{container} is healthy",
            every_s=1,
        )
        assert self("inspect", container, "--format={{.State.Health.Status}}") == "healthy"

    def close(self) -> None:
        for command in ("rm --time=0", "pod rm", "volume rm", "rmi"):
            self.run("podman", *command.split(), "--all", "--force")
        left = subprocess.run(
            ["ip", "netns", "pids", self.namespace], capture_output=True, text=True
        )
        for pid in left.stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        subprocess.run(["ip", "netns", "delete", self.namespace], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def _need() -> None:
    why_not = namespaces.why_not()
    if why_not:
        missing(why_not)
    if shutil.which("podman") is None or not Path("/usr/lib/podman/netavark").exists():
        missing("podman or its network is not here: apt-get install podman netavark aardvark-dns")
    installed = subprocess.run(["dpkg", "-s", *_PACKAGES], capture_output=True)
    if installed.returncode:
        missing(f"the images are made of Debian's packages: apt-get install {' '.join(_PACKAGES)}")


@pytest.fixture(scope="session")
def podman() -> Iterator[Podman]:
    """With the images of torchyard and of PostgreSQL."""
    _need()
    folder = Path(tempfile.mkdtemp(prefix="torchyard-deployment-"))
    namespace = f"torchyard-d{os.getpid()}"
    variables = {
        **own_podman.configure(folder, "netavark"),
        # Health checks would be timers of systemd's.
        "DISABLE_HC_SYSTEMD": "true",
    }
    (folder / "wheels").mkdir()
    made = Podman(folder, namespace, variables, Wheelhouse(folder / "wheels"))
    try:
        for place, text in _SOURCES.items():
            (folder / Path(place).name).write_text(text)
        made.wheels.add_torchyard()
        subprocess.run(["ip", "netns", "add", namespace], check=True)
        subprocess.run(["ip", "-n", namespace, "link", "set", "lo", "up"], check=True)
        for name, packages in (("python", _PACKAGES[:2]), ("postgresql", _PACKAGES[2:])):
            base_image.write(folder / "base.tar", packages)
            made("import", "--quiet", folder / "base.tar", f"localhost/test-{name}-base:1")
            (folder / "base.tar").unlink()
        file = REPOSITORY / "packaging" / "image" / "Containerfile"
        made.build(REPOSITORY, IMAGE, "localhost/test-python-base:1", f"--file={file}")
        made.build(_HERE / "postgres", POSTGRES, "localhost/test-postgresql-base:1")
        yield made
    finally:
        made.close()
        assert str(folder) not in Path("/proc/mounts").read_text()
        assert not folder.exists()


@pytest.fixture(scope="session")
def podman_compose() -> str:
    """The program, of this environment or on the PATH."""
    places = [str(Path(sys.executable).parent), os.environ["PATH"]]
    program = shutil.which("podman-compose", path=os.pathsep.join(places))
    if program is None:
        missing("podman-compose is not here: `make test-containers` installs it")
    return program
