"""What every Python of a rank runs at its start, so that a bad end leaves a record.

Owns: the hooks at Python's end: excepthook, sys.exit, os._exit, threads, faulthandler, atexit;
noticing that SDK v1, MLflow or torch.distributed is imported.
Leaves: writing the record to rank_record.py, reading it to diagnosis/artifacts.py, what SDK v1
still holds at the end to sdk_v1_exit.py, what MLflow does otherwise to mlflow_client.py, what
ranks do among each other to collectives_hook.py.
Always: nothing that the script prints, returns or exits with changes; a failure in here is silent;
without a rank's folder in the environment nothing is done. Two behaviours are changed: MLflow's
client, as mlflow_client.py says, and a Python that failed under MPI, which would wait in
MPI_Finalize for ranks that wait for it. Runs on Python 3.6 and later
and imports only what is built into the interpreter, because each Python of a job pays for it.
"""

import _thread
import atexit
import faulthandler
import os
import sys
import time

MYPY = False
if MYPY:
    from typing import Any

VARIABLE = "TORCHYARD_ERRORS"
RECORDER = "_torchyard_rank_record"
_AZURE_EXIT = "_torchyard_azure_exit"
_AZURE_CLIENT = "azureml._restclient.metrics_client"
_MLFLOW = "_torchyard_mlflow"
_COLLECTIVES = "_torchyard_collectives"
_PROCESS_GROUPS = "torch.distributed.distributed_c10d"
# A real-time signal that no library is known to use; asks for a stack of every thread.
STACKS_SIGNAL = 57
# High, so that the numbers a script gets are those it would get without us.
# The stack file gets another name when Python ends without an error: one if it will surely exit
# with 0, and one if the script may have raised SystemExit.
_STACK, _END, _QUIT = ".stack", ".end", ".quit"
# Which rank it was, and who started it, of a Python that leaves with code 0.
_LEFT = ".left"
# Those of `sys.excepthook`.
_HOOK_ARGUMENTS = 3
# Where a Python was that left by `os._exit` or SystemExit with another code.
_PLACE = ".place"
_FIRST_DESCRIPTOR, _LAST_DESCRIPTOR = 200, 250
_MOST_SOURCE = 1000000
_MOST_CALLERS = 30


class _Life:
    """What this process knows of its own end."""

    folder = ""
    pid = 0
    started = 0.0
    dump = ""
    recorded = False
    failed = False
    exit = None  # type: Any
    # The script's own frame and how far it was when it called `sys.exit`.
    at = None  # type: Any
    # The line and the code of its `sys.exit(0)`.
    place = None  # type: Any
    # The thread that called `sys.exit`, and the one that ends Python by that.
    exit_thread = 0
    main_thread = 0


def install() -> None:
    """Take note of how this process ends, if it belongs to a rank."""
    try:
        folder = os.environ.get(VARIABLE, "")
        if folder and not _Life.folder and os.path.isdir(folder):
            _install(folder)
    except Exception:
        pass


def _install(folder: str) -> None:
    _Life.folder, _Life.pid, _Life.started = folder, os.getpid(), time.time()
    _Life.main_thread = _thread.get_ident()
    _Life.dump = os.path.join(folder, f"{_Life.pid}{_STACK}")
    before = sys.excepthook

    def excepthook(kind: "Any", value: "Any", trace: "Any") -> None:
        # Code that runs here may make Python forget that SIGINT shall be its end; the kernel
        # tells of that end anyway.
        if not issubclass(kind, KeyboardInterrupt):
            _save_collectives(trace)
            _record("exception", kind, value, trace)
            _Life.failed = True
        _Life.recorded = True
        before(kind, value, trace)

    sys.excepthook = excepthook
    setattr(sys, "exit", _Exit(sys.exit))  # noqa: B010
    _watch_abrupt_exits()
    _watch_threads()
    try:
        _watch_crashes()
    except Exception:
        pass  # A disk without room, or few open files allowed: the rest is told all the same.
    atexit.register(_ended)
    sys.meta_path.insert(0, _Finder)


class _Finder:
    """Waits for SDK v1, MLflow and torch's process groups, and finds nothing."""

    # `typing` would cost each Python time.
    awaited = [_AZURE_CLIENT, "mlflow", _PROCESS_GROUPS]  # noqa: RUF012

    @staticmethod
    def find_spec(name: str, path: "Any" = None, target: "Any" = None) -> None:
        if name not in _Finder.awaited:
            return
        try:
            _Finder.awaited.remove(name)
            if not _Finder.awaited:
                sys.meta_path.remove(_Finder)
            if name == _AZURE_CLIENT:
                __import__(_AZURE_EXIT).expect(_Life.folder)
            elif name == _PROCESS_GROUPS:
                __import__(_COLLECTIVES).expect(_Life.folder)
            else:
                __import__(_MLFLOW).expect()
        except Exception:
            pass


class _Exit:
    """Stands for `sys.exit`; no function, because one that is kept in a class would be bound."""

    def __init__(self, original: "Any") -> None:
        self._original = original
        self.__wrapped__ = original
        self.__doc__ = original.__doc__
        self.__name__ = self.__qualname__ = "exit"
        self.__module__ = "sys"

    def __call__(self, *status: "Any") -> None:
        try:
            _note_exit(status[0] if status else None)
        except Exception:
            pass
        self._original(*status)

    def __repr__(self) -> str:
        return repr(self._original)

    def __reduce__(self) -> str:
        return "exit"


def _watch_abrupt_exits() -> None:
    """Of `os._exit` Python itself tells nobody."""
    before = os._exit

    def _exit(status: int) -> None:
        try:
            if os.getpid() == _Life.pid and _is_near_command():
                frame = sys._getframe(1)
                _note_lost_error(frame)
                _note_place(frame.f_lineno, frame.f_code)
                if status == 0:
                    _note_leaving()
        except Exception:
            pass
        before(status)

    setattr(os, "_exit", _exit)  # noqa: B010


def _note_lost_error(frame: "Any") -> None:
    """The error that `os._exit` hides: where it was handled, or by a hook that was given it."""
    error = sys.exc_info()[1]
    if error is None and frame.f_code.co_argcount == _HOOK_ARGUMENTS:
        given = [frame.f_locals.get(name) for name in frame.f_code.co_varnames[:_HOOK_ARGUMENTS]]
        error = given[1] if isinstance(given[1], BaseException) else None
    if error is not None and not isinstance(error, SystemExit):
        _save_collectives(error.__traceback__)
        _record("exception", type(error), error, error.__traceback__)


def _note_place(line: int, code: "Any") -> None:
    """Where the end was called for, if nothing else tells."""
    _leave(_PLACE, f"{line} {code.co_name} {code.co_filename}")


def _note_raise() -> None:
    """Where the script raised SystemExit, of which Python tells no hook: if it has one such line,
    that is it.
    """
    script = str(getattr(sys.modules.get("__main__"), "__file__", ""))
    with open(script, encoding="utf-8", errors="replace") as opened:
        lines = opened.readlines(_MOST_SOURCE)
    places = [number for number, line in enumerate(lines, 1) if _raises_exit(line.split("#")[0])]
    if len(places) == 1:
        _leave(_PLACE, f"{places[0]} <module> {script}")


def _raises_exit(line: str) -> bool:
    statements = line.replace(":", ";").split(";")
    starts = ("raise SystemExit", "exit(", "quit(")
    return any(statement.strip().startswith(starts) for statement in statements)


def _leave(ending: str, text: str) -> None:
    """Write a file for the worker."""
    name = _Life.dump[: -len(_STACK)] + ending
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, text.encode("utf-8", "replace"))
    finally:
        os.close(file)


def _note_exit(status: "Any") -> None:
    thread = _thread.get_ident()
    if thread != _Life.main_thread == _Life.exit_thread and _is_at_exit():
        return  # Python ends already.
    _Life.exit = _Life.at = _Life.place = None
    _Life.exit_thread = thread
    caller = sys._getframe(2)
    code = caller.f_code
    if "multiprocessing" in code.co_filename:
        return  # A child's way to end: what went wrong there was printed before.
    if status is not None and status != 0:
        # Made into text at once: to keep the exception would keep its frames and all they hold.
        _Life.exit = _recorder().describe(
            _Life.started, "exit", *sys.exc_info(), status, _callers(caller)
        )
    else:
        _Life.place = (caller.f_lineno, code)
    frame = caller  # type: Any
    while frame is not None:
        if frame.f_globals.get("__name__") == "__main__":
            _Life.at = (frame, frame.f_lasti)
        frame = frame.f_back


def _callers(frame: "Any") -> "Any":
    """Where a frame is, and those that called it: a library may end the script."""
    callers = []  # type: Any
    while frame is not None and len(callers) < _MOST_CALLERS:
        callers.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return callers


def _watch_threads() -> None:
    """A failing thread does not end Python, but it may be why the script ends itself later."""
    threads = sys.modules.get("threading")
    name = "excepthook" if threads is not None else "_excepthook"
    if threads is None:
        # `threading` takes its hook from here when it is imported; to import it costs too much.
        threads = _thread
    before = getattr(threads, name, None)
    if before is None:
        return  # Python 3.7 and earlier have no such hook.

    def excepthook(info: "Any") -> None:
        # By `sys.exit(2)` only the thread ends, and Python tells nobody.
        is_exit = info.exc_type is SystemExit
        if is_exit and _Life.exit_thread == _thread.get_ident():
            _Life.exit = _Life.at = _Life.place = None
        code = getattr(info.exc_value, "code", None)
        if not is_exit or (isinstance(code, int) and code):
            _record("thread", info.exc_type, info.exc_value, info.exc_traceback)
        before(info)

    setattr(threads, name, excepthook)


def _watch_crashes() -> None:
    file = os.open(_Life.dump, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        high = _free_descriptor()
        if high is not None:
            os.dup2(file, high, False)
            os.close(file)
            file = high
    except OSError:
        pass  # `ulimit -n` is below it.
    if not faulthandler.is_enabled():
        faulthandler.enable(file)
    faulthandler.register(STACKS_SIGNAL, file, all_threads=True, chain=False)


def _free_descriptor() -> "Any":
    for number in range(_LAST_DESCRIPTOR, _FIRST_DESCRIPTOR, -1):
        try:
            os.fstat(number)
        except OSError:
            return number
    return None


def _ended() -> None:
    """Python ends by itself: all that is not `os._exit` or a signal comes this way."""
    try:
        if os.getpid() != _Life.pid:
            return
        _tell_the_end()
        if _AZURE_CLIENT in sys.modules:
            # What was logged after its threads had ended, or by an older Python.
            __import__(_AZURE_EXIT).flush()
        _leave_mpi()
    except Exception:
        pass


def _tell_the_end() -> None:
    try:
        value = getattr(sys, "last_value", None)
        if not _Life.recorded:
            if value is not None:
                # The script has a hook of its own in place of ours.
                _Life.failed = True
                _save_collectives(value.__traceback__)
                _record("exception", type(value), value, value.__traceback__)
            elif _Life.exit is not None:
                _save_collectives(None)
                _recorder().save(_Life.folder, _Life.exit)
        if not (_Life.failed or _code_of_exit()) and _is_near_command():
            _note_leaving()
            # Kept for the worker: whatever happens from now on, the script had ended.
            ending = _END if _will_succeed() else _QUIT
            os.rename(_Life.dump, _Life.dump[: -len(_STACK)] + ending)
            if _Life.place is not None and _is_at_exit():
                _note_place(*_Life.place)
            elif ending == _QUIT and _Life.exit is None:
                _note_raise()
        elif not os.path.getsize(_Life.dump):
            os.unlink(_Life.dump)
    except Exception:
        pass


def _note_leaving() -> None:
    """Other ranks may still wait for this one: its connections close from now on."""
    # As in rank_record.py.
    names = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "TORCHYARD_RANK")
    rank = next((os.environ[name] for name in names if os.environ.get(name)), "")
    processes = sys.modules.get("multiprocessing.process")
    parent = getattr(processes, "parent_process", None)  # Not in Python 3.7 and earlier.
    if not rank or (parent is not None and parent() is not None):
        return
    collectives = sys.modules.get(_COLLECTIVES)
    is_alone = collectives is not None and collectives.has_called_nothing()
    _leave(_LEFT, f"{rank} {os.getppid()} {'alone' if is_alone else ''}")


def _is_near_command() -> bool:
    """Whether the job's command started this Python, or it may be one of the ranks of a launcher;
    the many small Pythons that a script starts leave no file.
    """
    return os.getsid(0) in (_Life.pid, os.getppid()) or "torch" in sys.modules


def _will_succeed() -> bool:
    """Whether the exit code is 0 for sure: the script ran to its end, or called `sys.exit(0)`.

    Python removes a script's `__file__` once its last line has run, and does not get there when
    SystemExit is raised. Of `-m` and `-c` that can't be told.
    """
    if _Life.exit is None and _is_at_exit():
        return True
    main = sys.modules.get("__main__")
    ran_file = hasattr(getattr(main, "__loader__", None), "path")
    return ran_file and not hasattr(main, "__file__")


def _leave_mpi() -> None:
    """End at once, with the code that the script would end with, if MPI would wait for others.

    This runs after all else that Python does at its end, and before mpi4py calls MPI_Finalize.
    """
    code = 1 if _Life.failed else _code_of_exit()
    mpi = sys.modules.get("mpi4py.MPI")
    if not code or mpi is None or not mpi.Is_initialized() or mpi.Is_finalized():
        return
    if mpi.COMM_WORLD.Get_size() > 1:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(code)


def _is_at_exit() -> bool:
    """Whether the script got no further than its last `sys.exit`."""
    return _Life.at is not None and _Life.at[0].f_lasti == _Life.at[1]


def _code_of_exit() -> int:
    """Of a `sys.exit` that nobody caught: the script's frame went no further."""
    if _Life.exit is None or not _is_at_exit():
        return 0
    status = _Life.exit["status"]
    return 1 if status is None else status & 255


def _record(kind: str, error_type: "Any", error: "Any", trace: "Any") -> None:
    try:
        recorder = _recorder()
        recorder.save(
            _Life.folder, recorder.describe(_Life.started, kind, error_type, error, trace)
        )
    except Exception:
        pass


def _save_collectives(trace: "Any") -> None:
    """Before the script's own end destroys its process groups."""
    collectives = sys.modules.get(_COLLECTIVES)
    if collectives is not None:
        collectives.save(trace)


def _recorder() -> "Any":
    return __import__(RECORDER)
