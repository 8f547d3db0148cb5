"""The program of a local run: it runs SDK v1's script on the user's own machine.

Owns: the steps of a run there, its environment, its process.
Leaves: inputs and outputs to files.py, shipping logs, and why a script failed, to the
worker's modules, statuses to the server.
Always: it outlives the client and its terminal; an unreachable server is waited for, and the script
never waits for it; the script ends with its program. Runs on Python 3.9 and later, with the
standard library and the worker's modules.

Source: azureml-core 1.61, `azureml/core/script_run.py`: `cancel` makes the file `killfile`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from torchyard.local_program import connection, files
from torchyard.local_program.connection import RunConnection
from torchyard.shared import locks, retry_delays, secret_values
from torchyard.shared.connection import AttemptOver, Refused
from torchyard.shared.failures import Failure
from torchyard.shared.masking import Masker
from torchyard.shared.retry_delays import retry
from torchyard.worker.files import thin_environment
from torchyard.worker.files.logs import LogShipper
from torchyard.worker.in_rank import rank_hook
from torchyard.worker.launch.ranks import Rank, RankExit
from torchyard.worker.system import processes
from torchyard.worker.system.memory_kills import MemoryKills

LOG = "torchyard.log"
_TASK, _KILL_FILE, _PRINTED = "task.json", "killfile", "std_log.txt"
_LOG_NAME, _BUILD_LOG = "user_logs/std_log.txt", "azureml-logs/20_image_build_log.txt"
_INPUT = re.compile(r"\$\{\{inputs\.(\w+)\}\}", re.ASCII)
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))", re.ASCII)
_NOT_PASSED_ON = ("PYTHONHOME", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")
_START_WAIT_S, _END_WAIT_S = 600.0, 86_400.0
_HEARTBEAT_S, _POLL_S, _BUILD_POLL_S = 10.0, 0.3, 1.0
_GRACE_S = 5.0


class Canceled(Exception):
    """The user wants the run to end."""


def main(folder: str) -> int:
    """
    Args:
        folder: `azureml-setup` in the run's own folder.
    """
    setup = Path(folder)
    if os.fork():
        return 0
    # Neither Ctrl-C in the client's terminal nor its end is the run's.
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with open(setup / LOG, "ab", buffering=0) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    try:
        return _run(setup)
    except BaseException:
        traceback.print_exc()
        return 1


class Heartbeat:
    """Reports the run's status to the server and notices a cancel, in daemon threads."""

    def __init__(self, run: RunConnection, kill_file: Path) -> None:
        self.canceled = threading.Event()
        self.status = "Preparing"
        self._run_connection = run
        self._kill_file = kill_file
        self._over = threading.Event()
        threading.Thread(target=self._run, name="heartbeat", daemon=True).start()
        threading.Thread(target=self._watch, name="kill-file", daemon=True).start()

    def set_status(self, status: str) -> None:
        """Report it at once if the server is reachable, else with the next heartbeat."""
        self.status = status
        self._report()

    def raise_if_canceled(self) -> None:
        if self.canceled.is_set():
            raise Canceled

    def stop(self) -> None:
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(_HEARTBEAT_S):
            self._report()

    def _watch(self) -> None:
        while not self._over.wait(_POLL_S):
            if self._kill_file.exists():
                self.canceled.set()
                return

    def _report(self) -> None:
        try:
            response = self._run_connection.call("POST", "/report", {"status": self.status})
        except (AttemptOver, Refused) as error:
            print(f"the server no longer accepts this run: {error}")
            self.canceled.set()
        except OSError as error:
            print(f"{time.ctime()}: the server is unreachable: {error}")
        else:
            if response.get("status") == "Canceled":
                self.canceled.set()


def _run(setup: Path) -> int:
    task = json.loads((setup / _TASK).read_text(encoding="utf-8"))
    token = connection.token(task["server"], os.environ)
    if not token:
        print(f"the environment holds no token for {task['server']}: run `yard client-env`")
        return 1
    run = RunConnection(task["server"], token, task["path"])
    response = retry(
        lambda: run.call("POST", "", {"machine": socket.gethostname()}),
        retry_delays.after(_START_WAIT_S),
    )
    variables: dict[str, str] = response["variables"]
    masker = Masker(secret_values.written(secret_values.of_environment(variables, ())))
    logs = LogShipper(run, setup, masker)
    for name, file in ((_BUILD_LOG, setup / Path(_BUILD_LOG).name), (_LOG_NAME, setup / _PRINTED)):
        logs.watch(file, name)
    logs.watch_folder(setup.parent / "logs", "logs")
    logs.start()
    heartbeat = Heartbeat(run, setup / _KILL_FILE)
    end: dict[str, Any] = {"status": "Completed", "exit_code": 0}
    try:
        _script(task, setup, run, heartbeat, variables)
    except Canceled:
        end = {"status": "Canceled"}
    except Failure as failure:
        end = {"status": "Failed", "exit_code": failure.exit_code, "error": failure.to_dict()}
    except Exception as error:
        traceback.print_exc()
        message = f"the run's program failed: {error!r}"
        unexpected = Failure("local_run", message, f"see {setup / LOG}")
        end = {"status": "Failed", "error": unexpected.to_dict()}
    try:
        _deliver(task, setup, run, heartbeat, logs, end)
    finally:
        heartbeat.stop()
        for name in ("inputs", "environment"):
            shutil.rmtree(setup / name, ignore_errors=True)
    return 0


def _script(
    task: Mapping[str, Any],
    setup: Path,
    run: RunConnection,
    heartbeat: Heartbeat,
    variables: dict[str, str],
) -> None:
    """From the environment to the end of a script that succeeds.

    Raises:
        Failure: it ended otherwise.
        Canceled: the user canceled it.
    """
    work = setup.parent
    program, environment = _environment(task, setup, run, heartbeat)
    paths = files.inputs(task, setup, run, heartbeat.raise_if_canceled)
    errors = setup / "errors"
    rank_errors = errors / "rank-0"
    rank_errors.mkdir(parents=True, exist_ok=True)
    (work / "outputs").mkdir(exist_ok=True)
    (work / "logs").mkdir(exist_ok=True)
    inputs = {name: _with_inputs(text, paths) for name, text in task["input_variables"].items()}
    environment = {
        "PYTHONUNBUFFERED": "1",
        **environment,
        **variables,
        **inputs,
        rank_hook.VARIABLE: str(rank_errors),
    }
    words = [_expanded(_with_inputs(word, paths), environment) for word in task["arguments"]]
    if task["command"]:
        text = _with_inputs(task["command"], paths)
        command = ["/bin/bash", "-c", " ".join([text, *map(shlex.quote, words)])]
    else:
        command = [program, task["script"], *words]
    memory = MemoryKills()
    heartbeat.set_status("Running")
    heartbeat.raise_if_canceled()
    printed = setup / _PRINTED
    with open(printed, "ab") as output:
        process = subprocess.Popen(
            command,
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_program,
        )
    try:
        _wait(process, heartbeat, task["limit_s"])
    finally:
        _end(process)
    exit = _exit_of(process, printed)
    if exit.exit_code and not _is_late_abort(exit, rank_errors, printed):
        failure = _failure(exit, work, errors, memory)
        if task["interpreter"] and failure.code == "import_failed":
            failure.hint = install_hint(failure.hint, program)
        raise failure


def _wait(process: subprocess.Popen[bytes], heartbeat: Heartbeat, limit_s: float) -> None:
    began = time.monotonic()
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_S)
            return
        heartbeat.raise_if_canceled()
        if limit_s and time.monotonic() - began > limit_s:
            message = f"the run took longer than its limit of {limit_s:g} seconds"
            raise Failure("timeout", message, "raise `max_run_duration_seconds`", 143)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the script and what it has started."""
    for signum, wait_s in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, _GRACE_S)):
        try:
            os.killpg(process.pid, signum)
        except (ProcessLookupError, PermissionError):
            break
        with suppress(subprocess.TimeoutExpired):
            process.wait(wait_s)
    process.poll()


def _die_with_program() -> None:
    processes.die_with_parent(signal.SIGKILL)
    for signum in (signal.SIGPIPE, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, signal.SIG_DFL)


def _exit_of(process: subprocess.Popen[bytes], printed: Path) -> RankExit:
    signum = max(0, -process.returncode)
    code = 128 + signum if signum else process.returncode
    return RankExit(Rank(0, 0, printed, _LOG_NAME), code, signum, process.pid, time.time())


def _is_late_abort(exit: RankExit, records: Path, printed: Path) -> bool:
    """Whether the script had ended successfully before it was aborted; its log says so then."""
    from torchyard.worker.diagnosis import late_aborts

    if not late_aborts.forgive(exit, records).aborted_late:
        return False
    with open(printed, "a", encoding="utf-8") as log:
        log.write(f"torchyard: {late_aborts.notice(exit)}\n")
    return True


def _failure(exit: RankExit, work: Path, errors: Path, memory: MemoryKills) -> Failure:
    from torchyard.worker.diagnosis import diagnosis
    from torchyard.worker.diagnosis.context import DiagnosisContext

    failure = diagnosis.diagnose(exit, DiagnosisContext(0, False, work, errors, memory)).failure
    message = failure.message.replace("rank 0 on node 0", "the script", 1)
    details = {key: value for key, value in failure.details.items() if key not in ("rank", "node")}
    return Failure(failure.code, message, failure.hint, exit.exit_code, details)


def install_hint(hint: str, program: str) -> str:
    """What to do about a missing package, where no environment is built.

    Args:
        hint: as for a job; its first word in backquotes is the package.
    """
    match = re.search(r"`([^`]+)`", hint)
    package = match[1] if match else "PACKAGE"
    return f"install it: `{program} -m pip install {package}`"


def _environment(
    task: Mapping[str, Any], setup: Path, run: RunConnection, heartbeat: Heartbeat
) -> tuple[str, dict[str, str]]:
    """(Python, variables that the script starts with)."""
    if not task["interpreter"]:
        return _built(setup, run, heartbeat)
    name = os.path.expanduser(task["interpreter"])
    program = shutil.which(name) or (shutil.which("python3") if name == "python" else None)
    if program is None:
        raise Failure(
            "no_interpreter",
            f"`{name}` is not a program of {socket.gethostname()}",
            "set another by `environment.python.interpreter_path`",
        )
    hooks = setup / "environment"
    thin_environment.put_hooks(hooks)
    python_path = os.environ.get("PYTHONPATH")
    path = f"{hooks}{os.pathsep}{python_path}" if python_path else str(hooks)
    return program, {**os.environ, "PYTHONPATH": path}


def _built(setup: Path, run: RunConnection, heartbeat: Heartbeat) -> tuple[str, dict[str, str]]:
    def ask(body: Mapping[str, Any]) -> dict[str, Any]:
        return retry(
            lambda: run.call("POST", "/environment", body), retry_delays.after(_START_WAIT_S)
        )

    build = ask({})
    with open(setup / Path(_BUILD_LOG).name, "a", encoding="utf-8") as log:
        while build["status"] == "building":
            log.write(build["log"])
            log.flush()
            if not build["log"] and heartbeat.canceled.wait(_BUILD_POLL_S):
                raise Canceled
            build = ask({"offset": build["next_offset"]})
        log.write(build.get("log", ""))
    if build["status"] != "ready":
        raise Failure("environment_failed", build["error"], build["hint"])
    shared = Path(build["folder"])
    if not (shared / "bin" / "python").exists():
        raise Failure(
            "environment_elsewhere",
            f"the run's environment was built on the server's machine, in `{shared}`, and "
            f"{socket.gethostname()} has no such folder",
            "set `environment.python.user_managed_dependencies = True` to run in a Python of this "
            "machine, or name a compute target",
        )
    with suppress(OSError):
        # Held until this process ends, so that the environment stays.
        locks.share_until_exit(Path(build["lock"]))
    programs = thin_environment.create(shared, setup / "environment")
    kept_variables = {key: text for key, text in os.environ.items() if key not in _NOT_PASSED_ON}
    return str(programs / "python"), {
        **kept_variables,
        "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "VIRTUAL_ENV": str(programs.parent),
    }


def _deliver(
    task: Mapping[str, Any],
    setup: Path,
    run: RunConnection,
    heartbeat: Heartbeat,
    logs: LogShipper,
    end: Mapping[str, Any],
) -> None:
    """Logs, outputs and the end, in this order, however long the server is unreachable."""
    try:
        heartbeat.set_status("Finalizing")
        logs.finish(_END_WAIT_S)
        if task["keeps_outputs"]:
            end = {**end, **files.outputs(setup.parent, run, end, retry_delays.after(_END_WAIT_S))}
        retry(lambda: run.call("POST", "/report", end), retry_delays.after(_END_WAIT_S))
    except (AttemptOver, Refused) as error:
        print(f"the server no longer accepts this run: {error}")


def _with_inputs(text: str, paths: Mapping[str, str]) -> str:
    return _INPUT.sub(lambda match: paths.get(match[1], match[0]), text)


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda match: variables.get(match[1] or match[2], match[0]), text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
