"""What a build leaves is copied, checked, and shares nothing with what was built."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from torchyard.base.errors import BuildFailed
from torchyard.environments.build import handover

ONE_DATABASE = True


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """An environment as a build leaves it."""
    venv = tmp_path / "built"
    packages = venv / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    (venv / "bin").mkdir()
    (venv / "lib64").symlink_to("lib")
    (packages / "module.py").write_text("x = 1\n")
    os.utime(packages / "module.py", ns=(10**18, 10**18 + 7))
    (venv / "bin" / "tool").write_text("#!/bin/sh\n")
    (venv / "bin" / "tool").chmod(0o755)
    (venv / "bin" / "python").symlink_to("/usr/bin/env")
    (venv / "bin" / "python3").symlink_to("python")
    return venv


def test_a_tree_is_copied(built: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    handover.copy(built, target)
    module = target / "lib64" / "python3.11" / "site-packages" / "module.py"
    assert module.read_text() == "x = 1\n" and module.stat().st_mtime_ns == 10**18 + 7
    assert os.readlink(target / "lib64") == "lib"
    assert os.access(target / "bin" / "tool", os.X_OK) and not os.access(module, os.X_OK)
    assert os.path.realpath(target / "bin" / "python3") == os.path.realpath("/usr/bin/env")


def test_an_open_file_or_a_second_name_changes_nothing(built: Path, tmp_path: Path) -> None:
    module = built / "lib" / "python3.11" / "site-packages" / "module.py"
    os.link(module, tmp_path / "second-name")
    with open(module, "a") as still_open:
        handover.copy(built, tmp_path / "copy")
        still_open.write("import evil\n")
    (tmp_path / "second-name").write_text("import evil\n")
    copied = tmp_path / "copy" / "lib" / "python3.11" / "site-packages" / "module.py"
    assert copied.read_text() == "x = 1\n" and copied.stat().st_nlink == 1


def test_no_file_keeps_rights_of_its_owner(built: Path, tmp_path: Path) -> None:
    tool = built / "bin" / "tool"
    tool.chmod(0o6777)
    (built / "lib").chmod(0o3777)
    handover.copy(built, tmp_path / "copy")
    modes = [
        stat.S_IMODE((tmp_path / "copy" / name).stat().st_mode) for name in ("bin/tool", "lib")
    ]
    assert modes == [0o755, 0o755]


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("lib/secret", "/etc/passwd"),
        ("bin/tool2", "/usr/bin/env"),
        ("up", "../../outside"),
        ("bin/up", "../.."),
        ("detour", "lib/python3.11/top/.."),
        ("circle", "circle"),
    ],
)
def test_a_link_that_leads_out_is_refused(
    built: Path, tmp_path: Path, name: str, target: str
) -> None:
    # By its letters `detour` stays inside, by the link that it goes through it does not.
    (built / "lib" / "python3.11" / "top").symlink_to("../..")
    (built / name).symlink_to(target)
    with pytest.raises(BuildFailed) as refusal:
        handover.copy(built, tmp_path / "copy")
    assert refusal.value.code == "build_refused" and f"`{name}`" in refusal.value.message


def test_a_python_that_others_can_change_is_refused(built: Path, tmp_path: Path) -> None:
    program = tmp_path / "open" / "python"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (built / "bin" / "python").unlink()
    (built / "bin" / "python").symlink_to(program)
    handover.copy(built, tmp_path / "first")
    program.parent.chmod(0o777)
    with pytest.raises(BuildFailed, match="that others can change"):
        handover.copy(built, tmp_path / "second")


def test_a_private_file_in_place_of_a_python_is_refused(built: Path, tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("secret")
    secret.chmod(0o600)
    (built / "bin" / "python").unlink()
    (built / "bin" / "python").symlink_to(secret)
    with pytest.raises(BuildFailed) as refusal:
        handover.copy(built, tmp_path / "copy")
    assert refusal.value.code == "build_refused" and "`bin/python" in refusal.value.message


@pytest.mark.parametrize("name", ["lib/module", "bin/python4"])
def test_a_way_out_and_in_again_is_refused(built: Path, tmp_path: Path, name: str) -> None:
    # As long as it is checked, the link out there leads to a file of the copy.
    (tmp_path / "link").symlink_to(tmp_path / "copy" / "bin" / "tool")
    (built / name).symlink_to(tmp_path / "link")
    with pytest.raises(BuildFailed) as refusal:
        handover.copy(built, tmp_path / "copy")
    assert refusal.value.code == "build_refused" and f"`{name}`" in refusal.value.message


def test_a_link_to_python_that_others_can_change_is_refused(built: Path, tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    (folder / "python").symlink_to("/usr/bin/env")
    (built / "bin" / "python").unlink()
    (built / "bin" / "python").symlink_to(folder / "python")
    handover.copy(built, tmp_path / "first")
    folder.chmod(0o777)
    with pytest.raises(BuildFailed, match="that others can change"):
        handover.copy(built, tmp_path / "second")


def test_pipes_and_devices_are_refused(built: Path, tmp_path: Path) -> None:
    os.mkfifo(built / "lib" / "pipe")
    with pytest.raises(BuildFailed, match="neither a file, a folder nor a link"):
        handover.copy(built, tmp_path / "copy")


def test_the_tree_itself_is_no_link(built: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc")
    with pytest.raises(OSError):
        handover.copy(tmp_path / "link", tmp_path / "copy")


def test_a_tree_that_is_too_deep_is_refused(built: Path, tmp_path: Path) -> None:
    deep = built
    for _ in range(150):
        deep = deep / "d"
        deep.mkdir()
    with pytest.raises(BuildFailed, match="too deep"):
        handover.copy(built, tmp_path / "copy")
