"""Which commands hide a failure: one with a pipe, or with a `cd` before another command."""

from __future__ import annotations

import pytest

from torchyard.shared import shell_commands


@pytest.mark.parametrize(
    ("command", "hides"),
    [
        ("python train.py | tee log.txt", True),
        ("python train.py 2>&1 |& tee log.txt", True),
        ("echo 'set -e'; python train.py | tee log.txt # set -e", True),
        ("cd src; python train.py", True),
        ("pip install x\ncd src  \n\npython train.py\n", True),
        ("(cd src\npython train.py)", True),
        ("cd src && python train.py", False),
        ("cd src || exit 1; python train.py", False),
        ("python train.py; cd src\n", False),
        ("pip install x\npython train.py \\\n  --lr 1", False),
        ("set -e; cd src; python train.py", False),
        ("set -x -e; cd src; python train.py", False),
        ("set -euo pipefail\npython train.py | tee log.txt", False),
        ("set -o pipefail; python train.py | tee log.txt", False),
        ("python train.py || echo failed", False),
        ("python train.py >| log.txt", False),
        ('python train.py --names \'a|b\' "c|\\"d" e\\|f # | x', False),
        ("echo don\\'t; python train.py | tee 'log.txt'", True),
        ("python - <<END\nprint(1 | 2)\nEND\ncd src; ls", False),
        ("", False),
    ],
)
def test_a_command_hides_failures(command: str, hides: bool) -> None:
    assert shell_commands.hide_failures(command) == hides


@pytest.mark.parametrize("part", ["\n", "'", '"', "\\", "cd ", " ", "||", '"\\"', "set -a "])
def test_a_long_command_is_looked_through(part: str) -> None:
    assert not shell_commands.hide_failures(part * 40_000)
    assert shell_commands.hide_failures(f"cd;{part * 40_000}\nls\ncd;ls")


@pytest.mark.parametrize(
    ("command", "ends"),
    [
        ("nohup python train.py > train.log 2>&1 &", True),
        ("python a.py & python b.py &\n", True),
        ("python train.py & # and go on", True),
        ("tensorboard --logdir x & python train.py", False),
        ("python a.py & python b.py & wait", False),
        ("python a.py &\nwait", False),
        ("test -f x && python train.py", False),
        ("python train.py &> train.log", False),
        ("python train.py --query 'a=1&'", False),
        ("python train.py --query a\\&", False),
        ("cat > x <<END\na &\nEND\n", False),
    ],
)
def test_a_last_program_in_the_background_is_told(command: str, ends: bool) -> None:
    assert shell_commands.ends_in_background(command) == ends
