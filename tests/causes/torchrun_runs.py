"""Run faults under plain `torchrun`, the peer, with its error files and its flight recorder.

Owns: one `torchrun` for each node on this machine, what it prints at the end.
Leaves: what is right to score.py.
Always: a script is wrapped by `@record`, as torchrun's guide asks, so that it gives its best; of
what it prints the summary counts, and without one the last lines; nothing is left running.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from causes.fault import Fault
from causes.score import Answer

_PATIENCE_S, _PATIENCE_OF_STALLS_S = 120.0, 45.0
_LAST_LINES = 20
_SUMMARY = re.compile(r"Root Cause \(first observed failure\):.*", re.DOTALL)
# Whatever needs no shell.
_SCRIPT = re.compile(r"python [\w./-]+\.py(?: [\w./=-]+)*")
_TIME = re.compile(r"^\s*time\s*: (\S+)", re.MULTILINE)
_WRAPPER = """
import runpy, sys
from torch.distributed.elastic.multiprocessing.errors import record

@record
def main():
    sys.argv = sys.argv[1:]
    sys.path[0] = ""
    runpy.run_path(sys.argv[0], run_name="__main__")

main()
"""


def run(
    faults: Sequence[Fault], python: Path, tell: Callable[[Answer], None] = lambda _: None
) -> list[Answer]:
    """
    Args:
        python: of an environment with torch.
    """
    answers = []
    for fault in faults:
        answer = _run(fault, python)
        tell(answer)
        answers.append(answer)
    return answers


def _run(fault: Fault, python: Path) -> Answer:
    with tempfile.TemporaryDirectory(prefix="causes-") as scratch:
        folder = Path(shutil.copytree(fault.folder, Path(scratch) / fault.name))
        wrapper = Path(scratch) / "recorded_main.py"
        wrapper.write_text(_WRAPPER)
        port = _free_port()
        outputs = [folder.parent / f"node-{node}.txt" for node in range(fault.nodes)]
        launchers = [
            _launch(fault, folder, wrapper, python, node, port, outputs[node])
            for node in range(fault.nodes)
        ]
        stalls = fault.right.ends == "stalls"
        deadline = time.monotonic() + (_PATIENCE_OF_STALLS_S if stalls else _PATIENCE_S)
        while time.monotonic() < deadline and any(each.poll() is None for each in launchers):
            time.sleep(0.2)
        codes = [each.poll() for each in launchers]
        for each in launchers:
            with contextlib.suppress(OSError):
                os.killpg(each.pid, signal.SIGKILL)
            each.wait()
        _end_processes(scratch)
        end = "still Running" if None in codes else "Failed" if any(codes) else "Completed"
        return Answer(
            fault.name, end, _said([file.read_text(errors="replace") for file in outputs])
        )


def _launch(
    fault: Fault, folder: Path, wrapper: Path, python: Path, node: int, port: int, output: Path
) -> subprocess.Popen[bytes]:
    is_script = _SCRIPT.fullmatch(fault.command) is not None
    program = (
        [str(wrapper), *shlex.split(fault.command)[1:]]
        if is_script
        else ["--no-python", "bash", "-c", fault.command]
    )
    variables: Mapping[str, str] = {
        **os.environ,
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "GLOO_SOCKET_IFNAME": "lo",
        "TORCH_FR_DUMP_TEMP_FILE": str(folder.parent / "recorder_"),
        **fault.variables,
    }
    with open(output, "wb") as file:
        return subprocess.Popen(
            [
                str(python), "-m", "torch.distributed.run", f"--nnodes={fault.nodes}",
                f"--nproc-per-node={fault.processes}", f"--node-rank={node}",
                "--master-addr=127.0.0.1", f"--master-port={port}",
                f"--log-dir={folder.parent / 'logs'}", *program,
            ],
            cwd=folder, env=dict(variables), stdout=file, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip


def _end_processes(scratch: str) -> None:
    """Ranks have sessions of their own and outlive a killed launcher; a variable tells them."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{scratch}/".encode() in (folder / "environ").read_bytes():
                os.kill(int(folder.name), signal.SIGKILL)


def _said(outputs: Sequence[str]) -> str:
    """The summary of the node whose rank failed first, else the last lines."""
    summaries = [match[0] for text in outputs if (match := _SUMMARY.search(text))]
    if summaries:
        return min(summaries, key=lambda summary: _TIME.findall(summary)[:1])
    return "\n".join("\n".join(text.splitlines()[-_LAST_LINES:]) for text in outputs)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
