"""Ranks in an image: as root, as an ordinary user, and on machines that do not allow it.

The image is empty but for links: its programs are the machine's own, shown to it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from torchyard.executors.bundle import worker_zip
from torchyard.shared.failures import Failure
from torchyard.shared.plan import ImagePlan, InputPlan
from torchyard.worker.launch import image_root
from worker.bench import Bench

pytestmark = pytest.mark.slow

# Creates a root and runs a script in it: `<zip> <node> <rootfs> <script>`.
_MAKER = """
import os, subprocess, sys
sys.path.insert(0, sys.argv[1])
from torchyard.shared.plan import ImagePlan
from torchyard.worker.launch import image_root
from torchyard.shared.failures import Failure
from pathlib import Path
os.chdir(sys.argv[2])
image = ImagePlan(sys.argv[3], {"PATH": "/usr/bin:/bin"}, ["/usr"])
try:
    root = image_root.make_root(image, Path(sys.argv[2]), [sys.argv[2]], (), {}, {})
except Failure as failure:
    sys.exit(failure.message)
environment = root.hide_loader_variables(image_root.variables(image, {}))
words = root.command([root.shell, "-c", sys.argv[4]])
sys.exit(subprocess.run(words, env=environment, timeout=60).returncode)
"""


def make_image(folder: Path) -> Path:
    (folder / "usr" / "bin").mkdir(parents=True)
    (folder / "usr" / "bin" / "sh").touch()
    for name in ("bin", "lib", "lib64"):
        (folder / name).symlink_to(f"usr/{name}")
    (folder / "etc").mkdir()
    (folder / "etc" / "mark").write_text("of the image\n")
    # As systemd has it: on the machine, this leads to a file that is not the image's.
    (folder / "etc" / "resolv.conf").symlink_to("/run/elsewhere/resolv.conf")
    (folder / "tmp").mkdir(mode=0o1777)
    return folder


@pytest.fixture(scope="module")
def allowed(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("probe")
    tried = _as_maker(folder, make_image(folder / "image"), "true", [sys.executable])
    if tried.returncode:
        pytest.skip(f"this machine lets nobody enter an image: {tried.stderr}")


@pytest.fixture
def image(tmp_path: Path, allowed: None) -> Path:
    return make_image(tmp_path / "image")


def _as_maker(
    folder: Path, image: Path, script: str, words: list[str], **user: Any
) -> subprocess.CompletedProcess[str]:
    node = folder / "node"
    node.mkdir(exist_ok=True)
    if user:
        shutil.chown(node, "nobody")
    zip_file = shutil.copy(worker_zip(folder), folder / "worker.pyz")
    return subprocess.run(
        [*words, "-c", _MAKER, str(zip_file), str(node), str(image), script],
        capture_output=True, text=True, timeout=60, cwd="/", **user,
    )  # fmt: skip


def _plan(image: Path, **more: object) -> ImagePlan:
    visible = ["/usr", sys.base_prefix] if not sys.base_prefix.startswith("/usr") else ["/usr"]
    return ImagePlan(str(image), {"GREETING": "hello", "PATH": "/usr/bin:/bin"}, visible)


def test_a_rank_runs_in_the_image_and_does_not_change_it(
    bench: Bench, image: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.txt").write_text("a\n")
    script = (
        "echo $$ $(ps -o sid= -p $$); cat /etc/mark; echo $GREETING $(pwd) $HOME; "
        "echo changed > /etc/mark; mkdir /new; cat ${{inputs.data}}/a.txt; "
        "touch ${{inputs.data}}/new 2>/dev/null || echo refused; touch /usr/x 2>/dev/null || "
        "echo refused; umount /usr 2>/dev/null || echo refused; echo made > outputs/made; "
        "test -e " + str(image) + " || echo the image is not in itself; ls /dev/null /proc/self/exe"
    )
    inputs = {"data": InputPlan("uri_folder", source=str(data))}
    plan = bench.plan(script, inputs=inputs, image=_plan(image))
    bench.run(plan)
    assert bench.exit()["error"] is None, bench.worker_log(plan)
    pid = bench.server.find("ranks_started")["ranks"][0]["pid"]
    log = bench.server.logs["user_logs/std_log.txt"].decode().splitlines()
    work = f"{plan.scratch}/node-0/work"
    assert log[0].split() == [str(pid), str(pid)]
    assert log[1:8] == [
        "of the image", f"hello {work} /root", "a", "refused", "refused", "refused",
        "the image is not in itself",
    ]  # fmt: skip
    assert sorted(os.listdir(image)) == ["bin", "etc", "lib", "lib64", "tmp", "usr"]
    assert (image / "etc" / "mark").read_text() == "of the image\n"
    assert os.readlink(image / "etc" / "resolv.conf") == "/run/elsewhere/resolv.conf"
    assert not (Path(plan.scratch) / "node-0" / "image").exists()


def test_the_ranks_of_a_node_share_written_files(bench: Bench, image: Path) -> None:
    script = (
        "touch /tmp/here-$RANK; n=0; until [ -e /tmp/here-0 ] && [ -e /tmp/here-1 ]; do "
        "n=$((n+1)); [ $n -gt 100 ] && exit 3; sleep 0.1; done; echo rank $RANK met"
    )
    plan = bench.plan(script, image=_plan(image), processes_per_node=2, distribution="pytorch")
    bench.run(plan, 30)
    assert bench.exit()["error"] is None, bench.worker_log(plan)
    assert b"rank 1 met" in bench.server.logs["user_logs/std_log_process_1.txt"]


def test_an_error_of_the_images_python_is_the_root_cause(bench: Bench, image: Path) -> None:
    python = Path(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")
    script = f"{python} -c 'import sys; raise ValueError(sys.path.count(\"\") + 41)'"
    bench.run(bench.plan(script, image=_plan(image)))
    error = bench.exit()["error"]
    assert "ValueError: 42" in error["message"], error


def test_a_canceled_rank_in_an_image_leaves_nothing(bench: Bench, image: Path) -> None:
    plan = bench.plan("(setsid sleep 300 &) ; sleep 300", image=_plan(image))
    handle = bench.launch(plan)
    bench.server.wait_for("ranks_started")
    bench.executor.stop(handle, 1.0)
    bench.wait(handle)
    bench.wait_until_none_left(plan)


def test_an_image_without_a_shell_is_refused(bench: Bench, image: Path) -> None:
    (image / "usr" / "bin" / "sh").unlink()
    bench.run(bench.plan("true", image=_plan(image)))
    assert bench.exit()["error"]["code"] == "image_unusable"


def test_mpi_in_an_image_is_refused(bench: Bench, image: Path) -> None:
    plan = bench.plan("true", image=_plan(image), distribution="mpi", processes_per_node=2)
    bench.run(plan)
    assert bench.exit()["error"]["code"] == "image_without_mpi"


def test_an_image_that_cannot_be_entered_fails_with_a_hint(tmp_path: Path) -> None:
    image = make_image(tmp_path / "image")
    node = tmp_path / "node"
    node.mkdir()
    plan = ImagePlan(str(image), {}, [])
    (image / "proc").write_text("no folder\n")
    with pytest.raises(Failure) as caught:
        image_root.make_root(plan, node, [str(node)], (), {}, {})
    assert caught.value.code == "image_forbidden"
    assert caught.value.hint


def test_variables_of_the_machine_are_not_inherited(tmp_path: Path) -> None:
    plan = ImagePlan("/image", {"PATH": "/opt/x/bin", "LANG": "C"}, [])
    base = {"PATH": "/usr/bin", "LD_LIBRARY_PATH": "/usr/x", "HOME": "/home/me", "LANG": "de",
            "CUDA_VISIBLE_DEVICES": "1", "https_proxy": "p", "SSL_CERT_FILE": "/c"}  # fmt: skip
    variables = image_root.variables(plan, base)
    # A machine with a GPU adds its driver's folder.
    assert "/usr/x" not in variables.pop("LD_LIBRARY_PATH", "")
    assert variables == {
        "PATH": "/opt/x/bin", "HOME": "/root", "LANG": "C", "CUDA_VISIBLE_DEVICES": "1",
        "https_proxy": "p", "SSL_CERT_FILE": "/c",
    }  # fmt: skip


def test_the_gpu_driver_is_bound_into_the_image(tmp_path: Path) -> None:
    assert image_root.driver_files(tmp_path) == {}
    libraries = tmp_path / "usr" / "lib" / "x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    (libraries / "libcuda.so.550.1").touch()
    (libraries / "libcuda.so.1").symlink_to("libcuda.so.550.1")
    (libraries / "libcublas.so.12").touch()  # not part of the driver
    (tmp_path / "usr" / "bin").mkdir()
    (tmp_path / "usr" / "bin" / "nvidia-smi").touch()
    assert image_root.driver_files(tmp_path) == {}  # not needed without a device
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidiactl").touch()
    real = str(libraries / "libcuda.so.550.1")
    assert image_root.driver_files(tmp_path) == {
        "/run/torchyard-driver/libcuda.so.550.1": real,
        "/run/torchyard-driver/libcuda.so.1": real,
        "/usr/bin/nvidia-smi": str(tmp_path / "usr/bin/nvidia-smi"),
    }


def test_an_ordinary_user_runs_in_an_image(image: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("the other tests ran as an ordinary user")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.chmod(folder, 0o755)
        make_image(folder / "image")
        for path in (folder / "image").rglob("*"):
            os.chown(path, 65534, 65534, follow_symlinks=False)
        script = (
            "cat /etc/mark; echo changed > /etc/mark; cat /etc/mark; id -u; touch $PWD/kept; "
            "touch /usr/x 2>/dev/null || echo refused; "
            "umount /usr 2>/dev/null || echo refused; "
            "mount -o remount,rw /usr 2>/dev/null || echo refused"
        )
        user = {"user": "nobody", "group": "nogroup", "extra_groups": []}
        python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
        if python is None:
            pytest.skip("user `nobody` has no Python on this machine")
        result = _as_maker(folder, folder / "image", script, [python], **user)
        lines = result.stdout.split("\n")
        assert lines[:6] == ["of the image", "changed", "0", "refused", "refused", "refused"], (
            result.stdout + result.stderr
        )
        assert (folder / "image" / "etc" / "mark").read_text() == "of the image\n"
        assert (folder / "node" / "kept").stat().st_uid == 65534


def test_a_plan_with_an_image_survives_json() -> None:
    plan = ImagePlan("/image", {"A": "b"}, ["/c"])
    assert ImagePlan(**json.loads(json.dumps(vars(plan)))) == plan
