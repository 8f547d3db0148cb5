"""Run the corpus of faults as real jobs, and see whether each error names rank and cause.

    python tests/faults/corpus.py [NAME…]

Owns: a server of its own, submitting all at once, the table.
Leaves: what a right answer is to known.py.
Always: nothing is left running at the end.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from faults.known import FAULTS, Fault
from faults.scripts import SCRIPTS
from torchyard.base.clock import from_text

_ENDED = ("Completed", "Failed", "Canceled")
_NODES = 24
_PATIENCE_S = 400.0


@dataclass(frozen=True)
class Answer:
    """How a fault's job ended; `wrong` says what its error got wrong, empty when all is right."""

    fault: Fault
    job: dict[str, Any]
    wrong: str

    @property
    def error(self) -> dict[str, Any]:
        return self.job.get("error") or {}

    @property
    def down_s(self) -> float | None:
        """Seconds from the cause to the end of the job on all nodes, logs delivered."""
        at = (self.error.get("details") or {}).get("at")
        ended = self.job.get("ended_at")
        if not at or not ended:
            return None
        return (from_text(str(ended)) - from_text(str(at))).total_seconds()


def run(
    faults: Sequence[Fault],
    home: Path,
    scripts: Mapping[str, str] = SCRIPTS,
    environment: Any = "python",
) -> list[Answer]:
    """All faults as jobs of one server, in the order given."""
    from torchyard import Client
    from torchyard.base.settings import Settings

    code = home / "code"
    write_scripts(code, scripts)
    with Client(workspace="default", settings=replace(Settings(home), url="", token="")) as client:
        client.computes.create({"name": "faults", "type": "amlcompute", "max_instances": _NODES})
        for fault in faults:
            client.jobs.create({**document(fault), "environment": environment}, home)
        deadline = time.monotonic() + _PATIENCE_S
        waited: dict[str, dict[str, Any]] = {}
        while len(waited) < len(faults) and time.monotonic() < deadline:
            listed = {job.name: job.status for job in client.jobs.list(max_results=None)}
            for name in [fault.name for fault in faults if fault.name not in waited]:
                if listed[name] in _ENDED:
                    waited[name] = client.jobs.get(name).raw
            time.sleep(0.5)
    return [_answer(fault, waited.get(fault.name, {"status": "not ended"})) for fault in faults]


def write_scripts(folder: Path, scripts: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in scripts.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    (folder / "data.txt").write_text("no program\n")


def document(fault: Fault) -> dict[str, Any]:
    """The job file of a fault."""
    shape: dict[str, Any] = {"resources": {"instance_count": fault.nodes}}
    if fault.processes * fault.nodes > 1:
        processes = {"type": "pytorch", "process_count_per_instance": fault.processes}
        shape["distribution"] = processes
    return {
        "name": fault.name,
        "command": fault.command,
        "code": "code",
        "compute": "faults",
        "experiment_name": "faults",
        "properties": fault.properties,
        "limits": fault.limits,
        **shape,
    }


def table(answers: Sequence[Answer]) -> str:
    """One line a fault, and the count of right ones."""
    lines = [f"{'fault':28}{'rank':5}{'code':22}message"]
    for answer in answers:
        details = answer.error.get("details") or {}
        rank = details.get("rank", "-")
        message = str(answer.error.get("message") or answer.job["status"]).replace("\n", " ")
        lines.append(
            f"{answer.fault.name:28}{rank!s:5}{answer.error.get('code', '-'):22}{message[:110]}"
        )
        lines += [f"    WRONG: {answer.wrong}"] if answer.wrong else []
    right = sum(not answer.wrong for answer in answers)
    lines.append(f"{right} of {len(answers)} right: {100 * right / len(answers):.1f} %")
    down = sorted(
        answer.down_s for answer in answers if answer.down_s is not None and answer.fault.nodes > 1
    )
    if down:
        middle = down[len(down) // 2]
        lines.append(
            f"from the cause to the end of the job, {len(down)} jobs on 2 nodes: median "
            f"{middle:.1f} s, longest {down[-1]:.1f} s"
        )
    return "\n".join(lines)


def _answer(fault: Fault, job: dict[str, Any]) -> Answer:
    return Answer(fault, job, "; ".join(_differences(fault, job)))


def _differences(fault: Fault, job: dict[str, Any]) -> Iterator[str]:
    error = job.get("error") or {}
    details = error.get("details") or {}
    if job["status"] != fault.status:
        yield f"status {job['status']}, not {fault.status}"
    if error.get("code", "") not in fault.code.split("|"):
        yield f"code {error.get('code')}, not {fault.code}"
    if fault.rank is not None and details.get("rank") != fault.rank:
        yield f"rank {details.get('rank')}, not {fault.rank}"
    if fault.exit_code is not None and job.get("exit_code") != fault.exit_code:
        yield f"exit code {job.get('exit_code')}, not {fault.exit_code}"
    text = f"{error.get('message')}\n{error.get('hint')}"
    for part in (*fault.says, *([fault.frame] if fault.frame else [])):
        if part not in text:
            yield f"`{part}` is not said: {text}"
    if fault.notice and not any(fault.notice in notice for notice in job.get("notices") or []):
        yield f"no notice says `{fault.notice}`: {job.get('notices')}"


@contextlib.contextmanager
def scratch_home() -> Iterator[Path]:
    """A home folder whose server is stopped at the end, and nothing left of it."""
    home = Path(tempfile.mkdtemp(prefix="torchyard-faults-"))
    before = os.environ.get("TORCHYARD_HOME")
    os.environ["TORCHYARD_HOME"] = str(home)
    try:
        yield home
    finally:
        yard = Path(sys.executable).with_name("yard")
        subprocess.run([yard, "server", "stop"], capture_output=True, timeout=60, check=False)
        os.environ.pop("TORCHYARD_HOME")
        if before is not None:
            os.environ["TORCHYARD_HOME"] = before
        _end_processes(home)
        _remove(home)


def _end_processes(home: Path) -> None:
    """What still runs of a corpus that was interrupted; known by the home in its variables."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            process_text = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
            if str(home).encode() in process_text and int(folder.name) != os.getpid():
                os.kill(int(folder.name), signal.SIGKILL)


def _remove(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir() and not path.is_symlink():
            path.chmod(path.stat().st_mode | stat.S_IRWXU)
    shutil.rmtree(folder, ignore_errors=True)


def main(names: Sequence[str]) -> int:
    chosen = [fault for fault in FAULTS if not names or fault.name in names]
    started = time.monotonic()
    with scratch_home() as home:
        answers = run(chosen, home)
    print(table(answers))
    print(f"took {time.monotonic() - started:.0f} s")
    right = sum(not answer.wrong for answer in answers)
    return 0 if right >= 0.95 * len(answers) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
