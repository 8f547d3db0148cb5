"""A disk that is full, for real: a small file system under the server or under the nodes.

Each kind of write meets it; afterwards the message is the one users read, the state can be read,
and with room again everything goes on and arrives whole. `DISK_FULL_SHOW=1` prints the messages.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from faults import fault_site
from faults.fault_site import Site
from torchyard.base import disk
from torchyard.shared.processes import send

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root"),
]

_HINT = "free some space: `yard gc --explain` lists what can be removed; the server then continues"
# Prints, logs metrics and writes results, each after the file that it is told to wait for.
_SCRIPT = """
import json, os, pathlib, sys, time, urllib.request
def log(step):
    body = {"run_id": os.environ["MLFLOW_RUN_ID"], "key": "loss", "value": step, "step": step,
            "timestamp": 1}
    request = urllib.request.Request(
        os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/runs/log-metric",
        json.dumps(body).encode(), {"Content-Type": "application/json",
        "Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"]})
    urllib.request.urlopen(request, timeout=60).read()
flag = pathlib.Path(sys.argv[1])
print("begun", flush=True)
while not flag.exists():
    time.sleep(0.05)
for step in range(50):
    print(f"line {step} " + "x" * 1000, flush=True)
    log(step)
pathlib.Path("outputs/weights.bin").write_bytes(bytes(range(256)) * 8192)
"""


@contextlib.contextmanager
def _mounted(folder: Path, size_mb: int) -> Iterator[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m,mode=700", "tmpfs", str(folder)],
        capture_output=True,
    )
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.decode()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def small_home(tmp_path: Path) -> Iterator[Site]:
    """The server's home is on a small disk, the nodes' scratch on another."""
    with _mounted(tmp_path / "home", 96) as home:
        (tmp_path / "scratch").mkdir()
        (home / "scratch").symlink_to(tmp_path / "scratch")
        yield from _served(home)


@pytest.fixture
def small_scratch(tmp_path: Path) -> Iterator[Site]:
    """The nodes' scratch is on a small disk, the server's home on another."""
    (tmp_path / "home").mkdir(mode=0o700)
    with _mounted(tmp_path / "home" / "scratch", 16):
        yield from _served(tmp_path / "home")


@pytest.fixture
def small_all(tmp_path: Path) -> Iterator[Site]:
    """As on most machines: home and scratch are on the same disk."""
    with _mounted(tmp_path / "home", 96) as home:
        yield from _served(home)


def _served(home: Path) -> Iterator[Site]:
    site = Site(home)
    try:
        site.start()
        yield site
    finally:
        (home / "ballast").unlink(missing_ok=True)
        site.end()
        deadline = time.monotonic() + 30
        while fault_site.having(str(home)) and time.monotonic() < deadline:
            for process in fault_site.having(str(home)):
                send(process.pid, process.start_time, 9)
            time.sleep(0.1)


def _fill(folder: Path) -> None:
    with open(folder / "ballast", "ab", buffering=0) as ballast:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while ballast.write(b"\0" * size):
                    pass


def _health(site: Site) -> Mapping[str, Any]:
    """It may be asked a little before it answers."""
    deadline = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(f"{site.url}/health", timeout=60) as answer:
                health: Mapping[str, Any] = json.loads(answer.read())
                return health
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def _free(folder: Path) -> None:
    (folder / "ballast").unlink()


def _yard(site: Site, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if "TORCHYARD" not in name}
    return subprocess.run(
        [str(Path(sys.executable).with_name("yard")), *arguments],
        env={**environ, "TORCHYARD_HOME": str(site.home)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def _refused(site: Site, method: str, path: str, body: Any) -> tuple[int, Mapping[str, Any]]:
    with pytest.raises(urllib.error.HTTPError) as caught:
        site.ask(method, path, body)
    return caught.value.code, json.loads(caught.value.read())["error"]


def _readable(site: Site, *names: str) -> None:
    listed = _yard(site, "job", "list", "-o", "json")
    assert listed.returncode == 0, listed.stderr
    assert set(names) <= {job["name"] for job in json.loads(listed.stdout)}
    for name in names:
        shown = _yard(site, "job", "show", "-n", name)
        assert shown.returncode == 0, shown.stderr
    fault_site.until(lambda: not _parts(site), 30, "no half file is left")


def _parts(site: Site) -> list[str]:
    """Half files; there is one for a moment whenever a worker tries its upload again."""
    tops = (site.home / "blobs", site.home / "datastores")
    return [
        name
        for top in tops
        for _, _, names in os.walk(top)
        for name in names
        if name.endswith(".part")
    ]


def _show(title: str, text: str) -> None:
    if os.environ.get("DISK_FULL_SHOW"):
        print(f"\n{title}:\n{text}", file=sys.__stdout__, flush=True)


def _folder(tmp_path: Path, **files: bytes) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_bytes(content)
    return folder


def _job_file(folder: Path, command: str) -> str:
    document = {"command": command, "environment": "azureml:python@latest", "code": "."}
    (folder / "job.yml").write_text(json.dumps(document))
    return str(folder / "job.yml")


def test_environment_submission_and_restart(small_home: Site, tmp_path: Path) -> None:
    site = small_home
    # An environment that does not fit.
    _fill(site.home)
    code, error = _refused(site, "POST", "jobs", {"command": "true", "environment": "python"})
    _show("submission without room for its record", f"{code} {error}")
    assert (code, error["code"]) == (507, "disk_full")
    assert error["message"] == "no space left on `torchyard.db`"
    with open(site.home / "ballast", "r+b") as ballast:
        ballast.truncate(ballast.seek(0, 2) - (2 << 20))
    failed = site.wait(site.submit({"command": "true"}))
    _show("environment", f"{failed['error']}")
    assert failed["status"] == "Failed"
    assert failed["error"]["code"] == "disk_full"
    assert failed["error"]["message"] == "no space left on `environments`"
    _readable(site, failed["name"])
    assert not [
        folder
        for folder in (site.home / "environments").iterdir()
        if folder.is_dir() and (folder.name[0] != "." or any(folder.iterdir()))
    ]
    # Code that does not fit.
    _fill(site.home)
    folder = _folder(tmp_path, train__py=b"print('done')", big__bin=os.urandom(4 << 20))
    refused = _yard(site, "job", "create", "-f", _job_file(folder, "python train.py"))
    _show("code upload", refused.stderr)
    assert refused.returncode == 1
    assert f"error: no space left on `blobs`\nhint: {_HINT}" in refused.stderr
    _readable(site, failed["name"])
    # A server can't start without room for its few files; it says so, and starts once there is.
    site.kill()
    _fill(site.home)
    with pytest.raises(AssertionError) as caught:
        site.start()
    assert site.server is not None and site.server.wait(60) != 0
    _show("start", str(caught.value))
    assert "error: no space left on `server.json`" in str(caught.value)
    _free(site.home)
    site.start()
    made = _yard(site, "job", "create", "-f", str(folder / "job.yml"), "-o", "json")
    assert made.returncode == 0, made.stderr
    done = site.wait(json.loads(made.stdout)["name"])
    assert done["status"] == "Completed", done["error"]


def test_logs_metrics_outputs_and_models(small_home: Site, tmp_path: Path) -> None:
    site = small_home
    flag = tmp_path / "go"
    folder = _folder(tmp_path, train__py=_SCRIPT.encode())
    made = _yard(
        site, "job", "create", "-f", _job_file(folder, f"python train.py {flag}"), "-o", "json"
    )
    assert made.returncode == 0, made.stderr
    name = json.loads(made.stdout)["name"]
    log = site.home / "logs" / "default" / name / "1" / "user_logs" / "std_log.txt"
    fault_site.until(lambda: log.exists() and b"begun" in log.read_bytes(), 60, "the job runs")
    _fill(site.home)
    flag.touch()
    node = site.nodes(name)[0]
    weights = node / "work" / "outputs" / "weights.bin"
    fault_site.until(lambda: weights.exists(), 60, "the script has ended")
    time.sleep(2)  # all that a full disk refuses has been refused by now
    assert site.job(name)["status"] in ("Running", "Finalizing")
    _readable(site, name)
    trouble = site.ask("GET", "/health")
    _show("health", str(trouble))
    code, error = _refused(site, "POST", "jobs", {"command": "true", "environment": "python"})
    assert (code, error["code"]) == (507, "disk_full")
    _free(site.home)
    done = site.wait(name)
    assert done["status"] == "Completed", done["error"]
    lines = "".join(f"line {step} {'x' * 1000}\n" for step in range(50))
    assert log.read_text() == "begun\n" + lines
    got = tmp_path / "got"
    assert _yard(site, "job", "download", "-n", name, "--all", "-p", str(got)).returncode == 0
    assert next(got.rglob("weights.bin")).read_bytes() == bytes(range(256)) * 8192
    history = f"/api/2.0/mlflow/metrics/get-history?run_id={name}&metric_key=loss"
    points = site.ask("GET", history)["metrics"]
    assert [point["step"] for point in points] == list(range(50))
    # A model of it, while the disk is full again.
    _fill(site.home)
    path = f"azureml://jobs/{name}/outputs/artifacts/paths/outputs/weights.bin"
    create = ("model", "create", "-n", "small", "--type", "custom_model", "--path", path)
    refused = _yard(site, *create)
    _show("model", refused.stderr)
    assert refused.returncode == 1 and "error: no space left on `" in refused.stderr
    listed = _yard(site, "model", "list", "-o", "json")
    assert listed.returncode == 0 and json.loads(listed.stdout) == []
    _readable(site, name)
    # What can go is told on a full disk, too; what the job needs stays until it is cleaned up.
    look = _yard(site, "gc", "--older-than", "0d", "--explain", "--dry-run")
    assert look.returncode == 0, look.stderr
    assert f"used by job `{name}`" in look.stdout
    _free(site.home)
    assert _yard(site, *create).returncode == 0
    fault_site.until(lambda: not list((tmp_path / "scratch").iterdir()), 60, "it is cleaned up")
    explained = _yard(site, "gc", "--older-than", "0d", "--explain")
    _show("gc", explained.stdout + explained.stderr)
    assert explained.returncode == 0, explained.stderr
    assert [line.split()[:2] for line in explained.stdout.splitlines()[2:4]] == [
        ["kept", "snapshot"],
        ["removed", "environment"],
    ]
    assert site.wait(site.submit({"command": "true"}))["status"] == "Completed"


@pytest.mark.parametrize("exists", [True, False], ids=["known home", "new home"])
@pytest.mark.parametrize("free_kb", [0, 16, 64, 256])
def test_a_server_starts_on_a_full_disk_or_says_why_not(
    tmp_path: Path, exists: bool, free_kb: int
) -> None:
    """Never a traceback, never a server that hangs; with room again it goes on."""
    with _mounted(tmp_path / "disk", 48) as mounted:
        site = Site(mounted / "home")
        site.home.mkdir(mode=0o700)
        try:
            if exists:
                site.start()
                made = _yard(site, "workspace", "create", "-n", "known")
                assert made.returncode == 0, made.stderr
                site.end()
            _fill(mounted)
            with open(mounted / "ballast", "r+b") as ballast:
                ballast.truncate((mounted / "ballast").stat().st_size - (free_kb << 10))
            output = tmp_path / "said"
            with open(output, "wb") as out:
                words = [str(Path(sys.executable).with_name("yard-server")), "--home"]
                site.server = subprocess.Popen(
                    [*words, str(site.home)], stdout=out, stderr=out, start_new_session=True
                )
            while b"serves" not in output.read_bytes() and site.server.poll() is None:
                time.sleep(0.1)
            if site.server.poll() is None:
                site.url = output.read_text().split(" at ")[1].split()[0]
                assert _health(site)["status"] in ("ok", "degraded")
                listed = _yard(site, "workspace", "list", "-o", "json")
                assert listed.returncode == 0, listed.stderr
                assert ("known" in listed.stdout) is exists
            else:
                assert site.server.returncode == disk.full("it").exit_code, output.read_text()
                error, hint = output.read_text().splitlines()[-2:]
                assert error.startswith("error: no space left on `"), error
                assert hint == f"hint: {disk.AT_START}"
                if os.environ.get("DISK_FULL_SHOW"):
                    print(
                        f"{free_kb} KB left, {'known' if exists else 'new'} home\n{error}\n{hint}"
                    )
            assert "Traceback" not in output.read_text()
            site.end()
            _free(mounted)
            site.start()
            listed = _yard(site, "workspace", "list")
            assert listed.returncode == 0 and ("known" in listed.stdout) is exists
        finally:
            site.end()


def test_a_full_disk_of_a_node_fails_the_job(small_scratch: Site, tmp_path: Path) -> None:
    site = small_scratch
    folder = _folder(tmp_path, big__bin=os.urandom(24 << 20))
    made = _yard(site, "job", "create", "-f", _job_file(folder, "true"), "-o", "json")
    assert made.returncode == 0, made.stderr
    failed = site.wait(json.loads(made.stdout)["name"])
    _show("code on the node", str(failed["error"]))
    assert failed["error"]["code"] == "disk_full"
    assert failed["error"]["message"].startswith("no space left on `scratch`")
    # What a script writes is its own error.
    command = "python -c \"open('big', 'wb').write(bytes(24 << 20))\""
    failed = site.wait(site.submit({"command": command}))
    _show("script", str(failed["error"]["message"]))
    assert failed["error"]["code"] == "disk_full"
    # Its traceback had space of its own.
    assert failed["error"]["message"] == (
        "rank 0 on node 0 exited with code 1: OSError: [Errno 28] No space left on device "
        "(<string> line 1)"
    )
    _readable(site, failed["name"])
    assert site.wait(site.submit({"command": "true"}))["status"] == "Completed"


@pytest.mark.parametrize("exit_code", [0, 3])
def test_a_job_that_fills_the_disk_of_the_server_loses_no_line(
    small_all: Site, exit_code: int
) -> None:
    """Its own files go first, so that what it printed and logged can be delivered."""
    site = small_all
    first = site.wait(site.submit({"command": "echo ready"}))
    assert first["status"] == "Completed", first["error"]
    command = (
        "cat /dev/zero > ballast 2>/dev/null; "
        "for n in $(seq 600); do echo line $n; done 2>/dev/null; sleep 3; "
        f"exit {exit_code}"
    )
    name = site.submit({"command": command})
    log = site.home / "logs" / "default" / name / "1" / "user_logs" / "std_log.txt"
    fault_site.until(lambda: any(site.nodes(name)), 60, "it is launched")
    fault_site.until(lambda: disk.is_full(site.home), 60, "the disk is full")
    code, error = _refused(site, "POST", "jobs", {"command": "true", "environment": "python"})
    assert (code, error["code"]) == (507, "disk_full")
    assert _health(site)["status"] in ("ok", "degraded")
    done = site.wait(name)
    assert done["status"] == ("Failed" if exit_code else "Completed"), done["error"]
    assert log.read_text() == "".join(f"line {n}\n" for n in range(1, 601))
    assert any(text.startswith("no space left on `scratch`") for text in done["notices"]), done
    assert site.wait(site.submit({"command": "true"}))["status"] == "Completed"
