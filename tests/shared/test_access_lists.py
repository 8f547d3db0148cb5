"""Access lists of folders: single accounts read, nobody else."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchyard.shared import access_lists

ONE_DATABASE = True
_FIRST, _SECOND, _THIRD = 61234, 61235, 61236


@pytest.fixture
def folder() -> Iterator[Path]:
    # Not pytest's own folder, which other users can't enter.
    with tempfile.TemporaryDirectory() as above:
        os.chmod(above, 0o711)
        made = Path(above, "copy")
        made.mkdir(mode=0o700)
        (made / "file").write_text("content")
        (made / "file").chmod(0o444)
        try:
            access_lists.let_read(made, ())
        except OSError:
            pytest.skip("the file system has no access lists")
        yield made


def test_a_list_names_its_readers(folder: Path) -> None:
    assert access_lists.readers(folder) == set()
    access_lists.let_read(folder, [_SECOND, _FIRST])
    assert access_lists.readers(folder) == {_FIRST, _SECOND}
    assert folder.stat().st_mode & 0o707 == 0o700
    access_lists.let_read(folder, [])
    assert access_lists.readers(folder) == set()


def test_a_folder_without_a_list_has_no_readers(tmp_path: Path) -> None:
    assert access_lists.readers(tmp_path) == set()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be other users")
def test_only_the_accounts_of_the_list_read(folder: Path) -> None:
    access_lists.let_read(folder, [_FIRST, _SECOND])
    program = (
        "import os, sys\n"
        "os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))\n"
        "def can(act):\n"
        "    try:\n"
        "        act()\n"
        "    except PermissionError:\n"
        "        return 'no'\n"
        "    return 'yes'\n"
        "os.chdir('/')\n"
        "path = sys.argv[2]\n"
        "print(can(lambda: open(path + '/file').read()), can(lambda: os.listdir(path)),\n"
        "      can(lambda: open(path + '/new', 'w')), can(lambda: os.chmod(path, 0o777)))\n"
    )
    answers = {}
    for user in (_FIRST, _SECOND, _THIRD):
        command = [sys.executable, "-I", "-c", program, str(user), str(folder)]
        answers[user] = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert answers == {
        _FIRST: "yes yes no no\n",
        _SECOND: "yes yes no no\n",
        _THIRD: "no no no no\n",
    }
