"""`yard job shell`: inside real jobs on a real server."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path
from typing import Any

import pytest

from end_to_end.yard_under_test import Yard, alive, wait_until
from torchyard.base.errors import Conflict, Forbidden, NotFound
from torchyard.base.http import Transport
from torchyard.client.interactive.shells import ShellOptions, open_shell

pytestmark = pytest.mark.slow
_JOBS = "/v1/workspaces/default/jobs"


def submit(transport: Transport, name: str, command: str = "sleep 300", **more: Any) -> None:
    """A job of that transport's person, until it runs."""
    document = {"name": name, "command": command, "environment": "python", **more}
    transport.post(_JOBS, document)
    wait_until(lambda: transport.get(f"{_JOBS}/{name}")["status"] == "Running", 120, f"{name} runs")


def words(transport: Transport, job: str, *command: str, rank: int | None = None) -> str:
    """What a command inside the job prints."""
    with open_shell(transport, _JOBS, job, ShellOptions(rank, command=command)) as shell:
        text = b"".join(data for _, data in shell.output()).decode()
        assert shell.exit_code == 0, text
        return text


# More than one read, and than any pattern spans.
_LOOKED_AT_BYTES = 128 << 10


class Terminal:
    """The `yard` command at a terminal."""

    def __init__(self, yard: Yard, *arguments: str) -> None:
        self.screen = b""
        self.pid, self.master = pty.fork()
        if not self.pid:
            os.environ.update(yard.variables)
            yard_path = str(Path(os.sys.executable).with_name("yard"))  # type: ignore[attr-defined]
            os.execv(yard_path, [yard_path, *arguments])

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def until(self, pattern: str, timeout_s: float = 120) -> re.Match[str]:
        deadline = time.monotonic() + timeout_s
        while True:
            # What was there before the last read did not match.
            match = re.search(pattern, self.screen[-_LOOKED_AT_BYTES:].decode(errors="replace"))
            if match:
                self.screen = b""
                return match
            assert time.monotonic() < deadline, (pattern, self.screen[-2000:])
            if select.select([self.master], [], [], 0.2)[0]:
                try:
                    self.screen += os.read(self.master, 65536)
                except OSError:
                    match = re.search(pattern, self.screen.decode(errors="replace"))
                    assert match, (pattern, self.screen[-2000:])
                    return match

    def resize(self, rows: int, columns: int) -> None:
        ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def exit_code(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@contextmanager
def terminal(yard: Yard, *arguments: str) -> Iterator[Terminal]:
    opened = Terminal(yard, *arguments)
    try:
        yield opened
    finally:
        try:
            os.kill(opened.pid, signal.SIGKILL)
            os.waitpid(opened.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass
        os.close(opened.master)


def test_a_command_has_the_ranks_environment_and_folder_and_its_exit_code(
    yard: Yard, people: dict[str, Transport]
) -> None:
    submit(
        people["owner"],
        "inside",
        "touch here; sleep 300",
        environment_variables={"MINE": "yes"},
        distribution={"type": "pytorch", "process_count_per_instance": 2},
    )
    shown = words(people["owner"], "inside", "sh", "-c", "ls; echo $RANK $MINE; pwd", rank=1)
    assert "here" in shown and "1 yes" in shown
    with yard.start(
        "job", "shell", "inside", "--", "sh", "-c", "echo out; echo err >&2; exit 7",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        out, err = process.communicate(timeout=60)
    assert (out, err, process.returncode) == (b"out\n", b"err\n", 7)
    with yard.start(
        "job", "shell", "inside", "--", "cat",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        data = os.urandom(3 << 20)
        assert process.communicate(data, timeout=120)[0] == data
    assert process.returncode == 0


def test_a_shell_at_a_terminal_knows_its_size_and_ctrl_c(
    yard: Yard, people: dict[str, Transport]
) -> None:
    submit(people["owner"], "terminal")
    with terminal(yard, "job", "shell", "terminal") as shell:
        shell.until(r"[#$] $")
        shell.resize(41, 101)
        shell.type("until stty size | grep '41 101'; do sleep 0.2; done; tty\r")
        shell.until(r"41 101\s+/dev/pts/\d+")
        shell.type("sleep 200; echo slept=$?\r")
        time.sleep(0.5)
        shell.type("\x03")
        shell.until(r"[#$] $")
        shell.type("head -c 3000000 /dev/zero | tr '\\0' x; echo; echo end-of-it\r")
        shell.until(r"x\s+end-of-it")
        shell.type("exit 5\r")
        assert shell.exit_code() == 5


def test_the_shell_of_a_client_that_dies_ends(yard: Yard, people: dict[str, Transport]) -> None:
    submit(people["owner"], "orphans")
    pids: list[int] = []
    with terminal(yard, "job", "shell", "orphans") as shell:
        shell.until(r"[#$] $")
        shell.type("sleep 250 & echo pids=$$,$!.\r")
        pids = [int(pid) for pid in shell.until(r"pids=(\d+),(\d+)\.").groups()]
        assert all(alive(pid) for pid in pids)
    wait_until(lambda: not any(alive(pid) for pid in pids), 60, "the shell has ended")
    assert people["owner"].get(f"{_JOBS}/orphans")["status"] == "Running"


def test_a_shell_ends_with_its_job(people: dict[str, Transport]) -> None:
    owner = people["owner"]
    submit(owner, "short-lived")
    options = ShellOptions(command=("sh", "-c", "trap '' HUP TERM; echo $$; sleep 200"))
    with open_shell(owner, _JOBS, "short-lived", options) as shell:
        output = shell.output()
        pid = int(next(output)[1])
        assert alive(pid)
        owner.post(f"{_JOBS}/short-lived/cancel?now=true")
        with contextlib.suppress(Conflict):  # if the node is gone before it can say how it ended
            list(output)
        assert shell.exit_code != 0
    wait_until(lambda: not alive(pid), 60, "the command has ended")


def test_a_shell_ends_with_the_right_to_it(people: dict[str, Transport]) -> None:
    owner = people["owner"]
    submit(people["ada"], "entered")
    owner.post("/v1/users", {"name": "eve", "role": "owner", "workspace": "default"})
    token = owner.post("/v1/users/eve/tokens", {"name": "t"})["token"]
    eve = Transport(owner.url, token)
    options = ShellOptions(command=("sh", "-c", "echo $$; sleep 600"))
    # She still reads the workspace, but enters only jobs of her own.
    with open_shell(eve, _JOBS, "entered", options) as shell:
        output = shell.output()
        pid = int(next(output)[1])
        owner.put("/v1/workspaces/default/people/eve", {"role": "contributor"})
        with pytest.raises(Conflict) as ended:
            list(output)
        assert ended.value.code == "shell_ended"
    wait_until(lambda: not alive(pid), 60, "the command has ended")
    eve.close()


def test_only_the_jobs_owner_and_owners_of_the_workspace_enter(
    people: dict[str, Transport],
) -> None:
    submit(people["ada"], "of-ada")
    for name in ("bob", "carl", "rita"):
        with pytest.raises(Forbidden):
            words(people[name], "of-ada", "true")
    assert words(people["ada"], "of-ada", "echo", "mine") == "mine\n"
    assert words(people["owner"], "of-ada", "echo", "ours") == "ours\n"


def test_a_jobs_own_token_opens_no_shell(people: dict[str, Transport]) -> None:
    submit(people["ada"], "first-of-ada", "echo token=$AZUREML_RUN_TOKEN > t; sleep 300")
    token = words(people["ada"], "first-of-ada", "printenv", "AZUREML_RUN_TOKEN").strip()
    job = Transport(people["ada"].url, token)
    with pytest.raises(Forbidden, match="job's token"):
        words(job, "first-of-ada", "true")
    job.close()


def test_another_person_neither_reads_nor_types(people: dict[str, Transport]) -> None:
    submit(people["ada"], "private")
    opened = people["ada"].post(f"{_JOBS}/private/shells", {"command": ["cat"], "terminal": False})
    path = f"/v1/workspaces/default/shells/{opened['id']}"
    for name in ("bob", "carl", "owner"):
        with pytest.raises(NotFound), people[name].stream(f"{path}/output"):
            pass
        with pytest.raises(NotFound):
            people[name].send("POST", f"{path}/input", b"", 0)


def test_what_does_not_run_is_refused(yard: Yard, people: dict[str, Transport]) -> None:
    submit(people["owner"], "refusals")
    with pytest.raises(NotFound):
        words(people["owner"], "no-such-job", "true")
    assert "no rank 7" in yard_error(yard, "job", "shell", "refusals", "--rank", "7")
    assert "no node 3" in yard_error(yard, "job", "shell", "refusals", "--node", "3")
    yard("job", "cancel", "refusals")
    wait_until(
        lambda: people["owner"].get(f"{_JOBS}/refusals")["status"] == "Canceled", 60, "it ended"
    )
    assert "hold: 30m" in yard_error(yard, "job", "shell", "refusals")


def test_shells_are_in_the_audit_log(yard: Yard, people: dict[str, Transport]) -> None:
    submit(people["ada"], "audited")
    words(people["ada"], "audited", "echo", "seen")

    def lines() -> list[dict[str, Any]]:
        text = yard("audit", "-o", "json")
        return [line for line in json.loads(text) if line["path"].endswith("/audited/shells")]

    wait_until(lambda: bool(lines()), 30, "the audit has it")
    assert lines()[0]["user"] == "ada"
    assert lines()[0]["about"]["command"] == "echo seen"


def test_nothing_of_the_servers_is_in_a_shell(yard: Yard, people: dict[str, Transport]) -> None:
    submit(people["owner"], "clean")
    shown = words(people["owner"], "clean", "env")
    token = (yard.home / "token").read_text().strip()
    plan = json.loads((yard.node_of("clean").parent / "plan.json").read_text())
    assert token not in shown and plan["report_token"] not in shown
    listed = words(people["owner"], "clean", "sh", "-c", "ls -l /proc/$$/fd | wc -l")
    assert int(listed) < 10


def yard_error(yard: Yard, *arguments: str) -> str:
    with yard.start(*arguments, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        error = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 2, error
    return error
