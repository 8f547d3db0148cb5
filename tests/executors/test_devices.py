"""GPUs found and locked: recorded outputs, two processes that race, hostile folders."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from torchyard.base.errors import Conflict
from torchyard.executors import device_locks, devices
from torchyard.executors.device_locks import DeviceLocks, give_back
from torchyard.executors.devices import Device
from torchyard.executors.machine import Machine

# nvidia-smi --query-gpu=index,uuid,name,memory.total,mig.mode.current --format=csv,noheader,nounits
_TWO_A100 = """\
0, GPU-5f1c0d3e-7a5b-9a0e-4d0e-3a7f5d8c1b22, NVIDIA A100-SXM4-80GB, 81920, Disabled
1, GPU-0b9b5a6c-12d4-8f3e-b6a1-99d2c4e8f701, NVIDIA A100-SXM4-80GB, 81920, Enabled
"""
_OLD_CARD = "0, GPU-1a2b3c4d-0000-1111-2222-333344445555, Tesla K80, 11441, [N/A]\n"
_NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that "
    "the latest NVIDIA driver is installed and running.\n"
)
# rocm-smi --showuniqueid --showproductname --showmeminfo vram --json
_ROCM = (
    'WARNING: AMD GPU device(s) is/are in a low-power state.\n{"card1": {"Unique ID": '
    '"0x9f6f1e2c4a5b7d01", "VRAM Total Memory (B)": "206141652992", "VRAM Total Used Memory (B)": '
    '"296361984", "Card Series": "AMD Instinct MI300X OAM", "Card Model": "0x74a1"}, "card0": '
    '{"Unique ID": "N/A", "VRAM Total Memory (B)": "17163091968", "Card series": "Radeon VII"}, '
    '"system": {"Driver version": "6.7.0"}}'
)


def printing(**texts: str) -> devices.Run:
    return lambda words: texts.get(words[0].replace("-", "_"), "")


def test_nvidias_list() -> None:
    detected = devices.find({}, printing(nvidia_smi=_TWO_A100))
    assert [(device.kind, device.index, device.name, device.split) for device in detected] == [
        ("nvidia", 0, "NVIDIA A100-SXM4-80GB", False),
        ("nvidia", 1, "NVIDIA A100-SXM4-80GB", True),
    ]
    assert detected[0].memory_bytes == 80 << 30
    assert detected[0].uuid == "GPU-5f1c0d3e-7a5b-9a0e-4d0e-3a7f5d8c1b22"
    assert not devices.find({}, printing(nvidia_smi=_OLD_CARD))[0].split
    assert devices.find({}, printing(nvidia_smi=_NO_DRIVER)) == ()


def test_amds_list() -> None:
    detected = devices.find({}, printing(rocm_smi=_ROCM))
    assert [(device.kind, device.index, device.uuid, device.name) for device in detected] == [
        ("amd", 0, "amd-0", "Radeon VII"),
        ("amd", 1, "GPU-9f6f1e2c4a5b7d01", "AMD Instinct MI300X OAM"),
    ]
    assert detected[1].memory_bytes == 206141652992
    for text in ("", "{", "[]", "no devices", '{"card0": 3}'):
        assert devices.of_amd(text) == ()


def test_a_program_that_fails_finds_nothing(tmp_path: Path) -> None:
    assert devices.find({"PATH": str(tmp_path)}) == ()
    for body in ("exit 9", "echo rubbish", f"printf '{_OLD_CARD.strip()}\\n'"):
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
        detected = devices.find({"PATH": f"{tmp_path}:/usr/bin:/bin"})
        assert [device.name for device in detected] == (["Tesla K80"] if "printf" in body else [])


def test_pretended_ones() -> None:
    assert [device.uuid for device in devices.find({devices.VARIABLE: "2"})] == [
        "pretended-0", "pretended-1",
    ]  # fmt: skip
    assert [device.uuid for device in devices.find({devices.VARIABLE: "a, b,a"})] == ["a", "b"]


def some(count: int, kind: str = "pretended") -> tuple[Device, ...]:
    return tuple(Device(kind, number, f"{kind}-{number}") for number in range(count))


def test_all_or_none_and_given_back(tmp_path: Path) -> None:
    locks, there = DeviceLocks(tmp_path / "locks"), some(3)
    first = locks.take(there, 2, "job a")
    assert [device.device.index for device in first] == [0, 1]
    assert locks.take(there, 2, "job b") == []
    assert [device.index for device in locks.free(there)] == [2], (
        "what was taken for it is free again"
    )
    assert locks.holder(there[0]) == "job a"
    give_back(first)
    assert len(locks.free(there)) == 3


def test_a_split_gpu_is_not_given_out(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\ncat <<'EOF'\n" + _TWO_A100 + "EOF\n")
    program.chmod(0o755)
    machine = Machine({"PATH": f"{tmp_path}:/bin", device_locks.VARIABLE: str(tmp_path / "locks")})
    assert len(machine.devices) == 2 and machine.most_together() == 1
    devices = machine.take(1, "x")
    assert [device.device.index for device in devices] == [0]
    assert machine.take(1, "y") == [] and list(machine.holders()) == [0]
    give_back(devices)


def test_one_job_gets_devices_of_one_vendor(tmp_path: Path) -> None:
    machine = Machine({device_locks.VARIABLE: str(tmp_path / "locks")})
    machine.__dict__["devices"] = (*some(1, "nvidia"), *some(2, "amd"))
    assert machine.most_together() == 2
    devices = machine.take(2, "x")
    assert {device.device.kind for device in devices} == {"amd"}
    give_back(devices)
    assert machine.take(3, "x") == []


def test_the_lock_lives_as_long_as_who_inherited_it(tmp_path: Path) -> None:
    locks, there = DeviceLocks(tmp_path / "locks"), some(1)
    [device] = locks.take(there, 1)
    # A grandchild holds it, too, when its parent is gone.
    words = ["/bin/sh", "-c", "sleep 1000 >/dev/null & echo $!"]
    output = subprocess.run(words, stdout=subprocess.PIPE, pass_fds=[device.descriptor], check=True)
    give_back([device])
    try:
        assert locks.take(there, 1) == []
    finally:
        os.kill(int(output.stdout), signal.SIGKILL)
    while not (again := locks.take(there, 1)):
        pass
    give_back(again)


_RACER = """
import os, sys
from pathlib import Path
from torchyard.executors.device_locks import DeviceLocks, give_back
from torchyard.executors.devices import find
place, claims, tries = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
os.umask(0o077)
there, locks = find({"TORCHYARD_DEVICES": "3"}), DeviceLocks(place)
got = twice = 0
if sys.argv[4]:
    os.setgid(int(sys.argv[4]))
    os.setuid(int(sys.argv[4]))
print("ready", flush=True)
sys.stdin.readline()
for number in range(tries):
    held = locks.take(there, 1 + number % 2, f"{os.getpid()}")
    marks = []
    for one in held:
        mark = claims / one.device.uuid
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
            marks.append(mark)
        except FileExistsError:
            twice += 1
    got += bool(held)
    for mark in marks:
        mark.unlink()
    give_back(held)
print(got, twice)
"""


def race(folder: Path, tries: int, users: Sequence[str]) -> list[tuple[int, int]]:
    """Takers of one folder at once; for each, how often it got devices, and how often one that
    somebody else had.
    """
    claims = folder / "claims"
    claims.mkdir()
    claims.chmod(0o777)
    words = [sys.executable, "-c", _RACER, str(folder / device_locks._NAME), str(claims)]
    environ = {"PYTHONPATH": str(Path(device_locks.__file__).parents[2]), "PATH": os.defpath}
    racers = [
        subprocess.Popen(
            [*words, str(tries), user], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env=environ,
        )
        for user in users
    ]  # fmt: skip
    try:
        for racer in racers:
            assert racer.stdout is not None and racer.stdout.readline() == "ready\n"
        output = []
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        for racer in racers:
            out, _ = racer.communicate(timeout=300)
            assert racer.returncode == 0
            got, twice = out.split()
            output.append((int(got), int(twice)))
        return output
    finally:
        for racer in racers:
            racer.kill()
            racer.wait()


@pytest.mark.parametrize("tries", [100, pytest.param(5000, marks=pytest.mark.slow)])
def test_two_processes_never_get_one_device_twice(tmp_path: Path, tries: int) -> None:
    output = race(tmp_path, tries, ["", ""])
    assert [twice for _, twice in output] == [0, 0]
    assert all(got > tries // 20 for got, _ in output), "both got some"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be two users")
def test_nor_do_two_users() -> None:
    import pwd

    # pytest's own folders are closed to others.
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="torchyard-test-") as made:
        folder = Path(made)
        folder.chmod(0o1777)
        output = race(folder, 100, [str(pwd.getpwnam("nobody").pw_uid), ""])
        assert [twice for _, twice in output] == [0, 0]
        assert all(got for got, _ in output)
        lock_file = folder / device_locks._NAME
        assert {oct(file.stat().st_mode & 0o777) for file in lock_file.iterdir()} == {"0o666"}
        assert oct(lock_file.stat().st_mode & 0o7777) == "0o1777"


def test_hostile_files_are_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("mine")
    folder = tmp_path / "locks"
    folder.mkdir()
    locks, there = DeviceLocks(folder), some(1)
    file = folder / "pretended-pretended-0"
    file.symlink_to(secret)
    with pytest.raises(Conflict, match="is not a regular file"):
        locks.take(there, 1)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(Conflict, match="is not a regular file"):
        locks.free(there)
    assert secret.read_text() == "mine"
    link = tmp_path / "link"
    link.symlink_to(folder)
    with pytest.raises(Conflict, match="is not a folder"):
        DeviceLocks(link).take(there, 1)


def test_a_file_that_was_taken_away_is_no_second_lock(tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    locks, there = DeviceLocks(folder), some(1)
    [device] = locks.take(there, 1)
    os.rename(folder / "pretended-pretended-0", folder / "away")
    # Locking the old file other than by its name does not take the device.
    os.close(os.open(folder / "pretended-pretended-0", os.O_CREAT | os.O_RDWR))
    assert not device_locks._is_current(device.descriptor, folder / "pretended-pretended-0")
    give_back([device])


def test_uuids_of_any_form_make_plain_names() -> None:
    for uuid in ("GPU-1", "../../etc/passwd", "a b", "x" * 500, ""):
        name = device_locks._file_name(Device("nvidia", 0, uuid))
        assert "/" not in name and len(name) < 150


def test_the_folder_is_the_same_for_every_user(tmp_path: Path) -> None:
    assert device_locks.folder({}) == device_locks.folder({"HOME": "/elsewhere", "TMPDIR": "/x"})
    assert device_locks.folder({device_locks.VARIABLE: str(tmp_path)}) == tmp_path
