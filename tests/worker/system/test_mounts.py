"""Read-only mounts as a rank sees them: as root, as an ordinary user, and where none may be."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ordinary_user import as_an_ordinary_user, as_nobody, python_of_nobody
from torchyard.executors.bundle import worker_zip
from torchyard.shared.connection import Connection
from torchyard.shared.failures import Failure
from torchyard.shared.plan import InputPlan
from torchyard.shared.server_address import ServerAddress
from torchyard.worker.files import inputs
from torchyard.worker.files.blobs import Blobs
from torchyard.worker.system import mounts
from torchyard.worker.system.mounts import Mount
from worker.bench import Bench

# Every way that a script might change what it was given.
_TRY = """
fails() { if "$@" 2>/dev/null; then echo "could: $*"; exit 9; fi; }
fails touch {0}/new; fails rm {0}/a.txt; fails chmod u+w {0}/a.txt; fails mv {0}/a.txt {0}/b.txt
fails sh -c 'echo x >> {0}/a.txt'; fails sh -c 'echo x > {0}/sub/b.txt'
fails mount -o remount,rw {0}; fails umount {0}
fails unshare -Ur mount -o remount,rw,bind {0}
fails unshare -Ur umount {0}
cat {0}/a.txt
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("a\n")
    (folder / "sub" / "b.txt").write_text("b\n")
    return folder


def _allowed(tmp_path: Path) -> None:
    why_not = mounts.why_not([Mount(str(tmp_path), str(tmp_path))])
    if why_not:
        pytest.skip(f"this machine allows no mounts: {why_not}")


def _placed(source: Path, folder: Path, **plan: str) -> inputs.PlacedInputs:
    folder.mkdir()
    plan_of_input = InputPlan(**{"kind": "uri_folder", "source": str(source), **plan})
    blobs = Blobs(
        Connection.of_attempt(ServerAddress("http://127.0.0.1:1"), "", "a"), "", lambda: False
    )
    return inputs.place_inputs({"data": plan_of_input}, folder, blobs)


def _run(placed: inputs.PlacedInputs, script: str) -> subprocess.CompletedProcess[str]:
    words = mounts.command(placed.mounts, ["/bin/sh", "-c", script])
    return subprocess.run(words, capture_output=True, text=True, timeout=60)


def test_a_read_only_mount_refuses_every_write(tmp_path: Path, data: Path) -> None:
    _allowed(tmp_path)
    placed = _placed(data, tmp_path / "inputs")
    assert not placed.notices
    done = _run(placed, _TRY.replace("{0}", placed.values["data"]))
    assert (done.returncode, done.stdout, done.stderr) == (0, "a\n", "")
    assert sorted(os.listdir(data)) == ["a.txt", "sub"]
    assert os.listdir(placed.values["data"]) == []  # seen by the rank alone


def test_one_file_is_mounted_under_its_name(tmp_path: Path, data: Path) -> None:
    _allowed(tmp_path)
    placed = _placed(data / "a.txt", tmp_path / "inputs", kind="uri_file")
    file = placed.values["data"]
    assert file.endswith("/data/a.txt")
    done = _run(placed, f"cat {file}; echo x >> {file}")
    assert done.stdout == "a\n"
    assert done.returncode != 0


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user has no right to lose")
def test_where_root_may_not_mount_only_what_was_promised_is_missed(tmp_path: Path) -> None:
    def drop() -> None:
        ctypes.CDLL(None).prctl(24, 21, 0, 0, 0)  # CAP_SYS_ADMIN, as in most containers

    for for_good, message, code in ((False, "ran\n", 0), (True, "", 126)):
        mount = Mount(str(tmp_path), str(tmp_path), for_good=for_good)
        words = mounts.command([mount], ["/bin/sh", "-c", "echo ran"])
        done = subprocess.run(words, preexec_fn=drop, capture_output=True, text=True)
        assert (done.stdout, done.returncode) == (message, code), done.stderr


# Root of a namespace like a machine's, whose mounts others receive; the child is a worker.
_LATER_MOUNTS = """
import os, subprocess, sys
from torchyard.worker.system import mounts
folder, unmounted, mounted = sys.argv[1:]
mount = ["mount", "-t", "tmpfs", "none"]
subprocess.run([*mount, unmounted], check=True)
ready, done = os.pipe(), os.pipe()
worker = os.fork()
if worker == 0:
    mounts.protect(folder)
    os.write(ready[1], b"x")
    os.read(done[0], 1)
    print(os.path.ismount(unmounted), os.path.ismount(mounted), os.path.ismount(folder + "/sub"))
    print(mounts.is_read_only(folder), mounts.is_read_only(folder + "/sub"), flush=True)
    os._exit(0)
os.read(ready[0], 1)
print(mounts.is_read_only(folder), flush=True)
subprocess.run(["umount", unmounted], check=True)
subprocess.run([*mount, mounted], check=True)
subprocess.run([*mount, folder + "/sub"], check=True)
os.write(done[1], b"x")
os.waitpid(worker, 0)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's worker is in a namespace of its own")
def test_a_worker_follows_the_mounts_of_its_machine_but_not_below_what_it_only_reads(
    tmp_path: Path, data: Path
) -> None:
    _allowed(tmp_path)
    others = [tmp_path / name for name in ("unmounted", "mounted")]
    for folder in others:
        folder.mkdir()
    unshare = ["unshare", "--mount", "--propagation", "shared"]
    words = [*unshare, sys.executable, "-c", _LATER_MOUNTS, str(data), *map(str, others)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    machine, worker, protected = done.stdout.splitlines()
    assert machine == "False", "the machine itself may write"
    assert worker == "False True False"
    assert protected == "True True"


def test_the_same_as_an_ordinary_user() -> None:
    if os.geteuid() != 0:
        pytest.skip("the other tests ran as an ordinary user")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        source, target = Path(folder, "data"), Path(folder, "seen")
        (source / "sub").mkdir(parents=True)
        (source / "a.txt").write_text("a\n")
        (source / "sub" / "b.txt").write_text("b\n")
        target.mkdir()
        for path in (source, source / "sub", source / "a.txt", source / "sub" / "b.txt", target):
            shutil.chown(path, "nobody")
        words = mounts.command([Mount(str(source), str(target))], ["/bin/sh", "-c", "true"])
        words[0] = python_of_nobody()
        # The sources may be closed to that user; the zip is what really runs.
        words[5] = str(shutil.copy(worker_zip(Path(folder)), Path(folder, "worker.pyz")))
        words[-1] = _TRY.replace("{0}", str(target)) + "id -un\n"
        done = as_nobody(words)
        assert done.stdout.split() == ["a", "nobody"], done.stdout + done.stderr
        writes = as_nobody(["/bin/sh", "-c", f"echo more >> {source}/a.txt"])
        assert writes.returncode == 0, "the folder itself is that user's own"


def test_a_download_can_be_changed_and_changes_nothing_else(tmp_path: Path, data: Path) -> None:
    os.chmod(data / "a.txt", 0o444)
    placed = _placed(data, tmp_path / "inputs", mode="download")
    assert not placed.mounts
    done = _run(placed, f"cd {placed.values['data']} && echo x >> a.txt && touch sub/new")
    assert done.returncode == 0, done.stderr
    assert (data / "a.txt").read_text() == "a\n"
    assert sorted(os.listdir(data / "sub")) == ["b.txt"]


def test_a_copy_has_what_a_mount_shows(tmp_path: Path, data: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "c.txt").write_text("c\n")
    (data / "empty").mkdir()
    (data / "sub" / "up").symlink_to(data)
    (data / "far").symlink_to(elsewhere)
    (data / "near").symlink_to("sub/b.txt")
    (data / "gone").symlink_to("nothing")
    os.mkfifo(data / "pipe")
    placed = _placed(data, tmp_path / "inputs", mode="download")
    here = Path(placed.values["data"])
    paths = sorted(str(path.relative_to(here)) for path in here.rglob("*"))
    assert paths == ["a.txt", "empty", "far", "far/c.txt", "near", "sub", "sub/b.txt"]
    assert not any(path.is_symlink() for path in here.rglob("*"))


def test_an_input_that_can_not_be_read_is_told_by_its_name() -> None:
    with as_an_ordinary_user() as folder:
        closed = folder / "data"
        closed.mkdir()
        (closed / "x").write_text("x")
        os.chmod(closed / "x", 0)
        with pytest.raises(Failure, match=r"input `data` can't be read: .*/x`: Permission denied"):
            _placed(closed, folder / "inputs", mode="download")


def test_without_namespaces_there_is_a_copy_and_a_notice(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounts, "why_not", lambda mounts: "unshare: Operation not permitted")
    placed = _placed(data, tmp_path / "inputs")
    assert placed.mounts == ()
    assert "unshare: Operation not permitted" in placed.notices[0]
    here = Path(placed.values["data"])
    assert (here / "sub" / "b.txt").read_text() == "b\n"
    assert (here / "a.txt").stat().st_mode & 0o777 == 0o444
    assert here.stat().st_mode & 0o777 == 0o555
    for folder in (here, here / "sub"):
        os.chmod(folder, 0o755)


def test_what_cannot_be_mounted_is_said(tmp_path: Path) -> None:
    message = mounts.why_not([Mount(str(tmp_path / "none"), str(tmp_path))])
    assert message


def test_ranks_keep_pid_session_and_signals(bench: Bench, tmp_path: Path, data: Path) -> None:
    _allowed(tmp_path)
    inputs = {"data": InputPlan("uri_folder", source=str(data))}
    script = (
        "echo $$ $(ps -o sid= -p $$); grep SigIgn /proc/self/status; "
        "cat ${{inputs.data}}/a.txt; touch ${{inputs.data}}/new 2>/dev/null || echo refused"
    )
    plan = bench.plan(script, inputs=inputs)
    bench.run(plan)
    pid = bench.server.find("ranks_started")["ranks"][0]["pid"]
    log = bench.server.logs["user_logs/std_log.txt"].decode().split("\n")
    assert log[0].split() == [str(pid), str(pid)]
    assert int(log[1].split()[1], 16) & 0x7FFFFFFF == 0  # beyond stand signals of libc itself
    assert log[2:4] == ["a", "refused"]
    assert bench.exit()["error"] is None


def test_a_node_elsewhere_gets_its_inputs_over_http(bench: Bench) -> None:
    bench.server.inputs = {"data": {"a b.txt": b"1\n", "deep/c": b"2\n"}, "one": {"x.csv": b"3\n"}}
    inputs = {
        "data": InputPlan("uri_folder", source="/not/here"),
        "one": InputPlan("uri_file", source="/not/here/x.csv", mode="download"),
    }
    script = (
        "cat '${{inputs.data}}/a b.txt' ${{inputs.data}}/deep/c; echo 4 >> ${{inputs.one}}; "
        "cat ${{inputs.one}}; touch ${{inputs.data}}/new 2>/dev/null || echo refused"
    )
    bench.run(bench.plan(script, inputs=inputs, blobs=""))
    assert bench.exit()["error"] is None
    log = bench.server.logs["user_logs/std_log.txt"].decode()
    assert log == "1\n2\n3\n4\nrefused\n"


def test_an_input_that_the_server_lacks_ends_the_node(bench: Bench) -> None:
    inputs = {"data": InputPlan("uri_folder", source="/not/here")}
    bench.run(bench.plan("true", inputs=inputs, blobs=""))
    assert bench.exit()["error"]["code"] == "input_missing"
