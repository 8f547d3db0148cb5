"""What a rank that imports torch.distributed runs so that its worker can read its collectives.

Owns: the list of a rank's recent collectives, made from torch's own recorder; the socket at which
the worker asks for it; its file, when Python ends by an error.
Leaves: noticing the import to rank_hook.py, reading to worker/diagnosis/rank_calls.py, comparing
ranks to shared/collectives.py.
Always: the recorder is torch's, which counts anyway: a collective costs nothing more. The thread
waits in the kernel, takes no signals, and answers also while the script waits in torch; it touches
torch only when it is asked. A failure in here is silent. Runs on Python 3.6 and later.
"""

import json
import os
import pickle
import sys

MYPY = False
if MYPY:
    from typing import Any

# What the worker sends where it wants each call's line, too. The first time that costs a second,
# in which torch reads the tables of its libraries' symbols.
WITH_LINES = b"l"
ENDING = ".calls"
SAVED = ".calls-at-end"
# Of each group; one that went astray differs from the others in its last ones.
_MOST_CALLS, _MOST_GROUPS = 48, 16
_TEXT = 200
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python3", "<frozen ", "<string>")
_RECORDER = "torch._C._distributed_c10d"
_GROUPS = "torch.distributed.distributed_c10d"
# Of earlier versions the recorder of NCCL is off unless this says how much it keeps.
_NCCL_SIZE = "TORCH_NCCL_TRACE_BUFFER_SIZE"
_RECORDS_ALWAYS = (2, 5)
# The first version that records Gloo's collectives, too; other libraries that connect ranks.
_RECORDS_GLOO = (2, 13)
_OTHER_LIBRARIES = ("horovod", "mpi4py", "ray")


class _Process:
    folder = ""
    pid = 0


def expect(folder: str) -> None:
    """Wait for the worker's questions, if this process is one of several ranks."""
    size = os.environ.get("WORLD_SIZE", "1")
    if _Process.folder or not (size.isdigit() and int(size) > 1):
        return
    _Process.folder, _Process.pid = folder, os.getpid()
    if _torch_version() < _RECORDS_ALWAYS:
        os.environ.setdefault(_NCCL_SIZE, "2000")
    import _thread
    import socket

    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # By the descriptor, because the path of a socket may have 107 characters at most.
        listener.bind(f"/proc/self/fd/{directory}/{_Process.pid}{ENDING}")
    finally:
        os.close(directory)
    listener.listen(4)
    # No `threading.Thread`, which the script would find among its own.
    _thread.start_new_thread(_serve, (listener,))


def _torch_version() -> "Any":
    text = str(getattr(sys.modules.get("torch.version"), "__version__", "0"))
    return tuple(int(part) if part.isdigit() else 0 for part in text.split(".")[:2])


def _serve(listener: "Any") -> None:
    try:
        import signal

        signal.pthread_sigmask(signal.SIG_BLOCK, getattr(signal, "valid_signals", set)())
    except Exception:
        pass
    while True:
        try:
            connection = listener.accept()[0]
        except Exception:
            return
        try:
            connection.settimeout(5.0)
            with_lines = connection.recv(1) == WITH_LINES
            connection.sendall(_text(with_lines).encode("utf-8", "replace"))
        except Exception:
            pass
        finally:
            connection.close()


def has_called_nothing() -> bool:
    """Whether this rank is one of several and surely never called a collective."""
    return bool(
        _Process.folder
        and _torch_version() >= _RECORDS_GLOO
        and not any(each in sys.modules for each in _OTHER_LIBRARIES)
        and next(iter(_entries(False)), None) is None
    )


def save(trace: "Any" = None) -> None:
    """Leave the list for the worker, because this Python ends by an error.

    Args:
        trace: the traceback of that error, whose line may be that of the last call.
    """
    try:
        if _Process.folder and os.getpid() == _Process.pid and _GROUPS in sys.modules:
            name = os.path.join(_Process.folder, f"{_Process.pid}{SAVED}")
            draft = f"{name}.new"
            file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(file, "w", encoding="utf-8", errors="replace") as stream:
                stream.write(_text(False, True, _location(trace)))
            os.rename(draft, name)
    except Exception:
        pass


def _location(trace: "Any") -> str:
    location = ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not any(part in file for part in _LIBRARIES):
            location = f"{file[-_TEXT:]} line {trace.tb_lineno}"
        trace = trace.tb_next
    return location


def _text(with_lines: bool, ended: bool = False, where: str = "") -> str:
    module = sys.modules.get(_GROUPS)
    world = getattr(module, "_world", None)
    ranks_of = getattr(world, "pg_group_ranks", None) or {}
    names_of = getattr(world, "pg_names", None) or {}
    members = {str(names_of.get(group)): sorted(ranks) for group, ranks in ranks_of.items()}
    groups = {}  # type: Any
    for entry in _entries(with_lines):
        if entry.get("is_p2p"):
            continue
        name = str((entry.get("process_group") or ("?",))[0])
        groups.setdefault(name, []).append(_call(entry))
    listed = [
        {"name": name, "ranks": members.get(name, []), "calls": groups.get(name, [])[-_MOST_CALLS:]}
        for name in sorted({*members, *groups})[:_MOST_GROUPS]
    ]
    return json.dumps(
        {
            "rank": os.environ.get("RANK"),
            "groups": listed,
            "groups_made": getattr(world, "group_count", 0),
            "ended": ended,
            "where": where,
        }
    )


def _entries(with_lines: bool) -> "Any":
    recorder = sys.modules.get(_RECORDER)
    for name in ("_dump_fr_trace", "_dump_nccl_trace"):
        dump = getattr(recorder, name, None)
        if dump is None:
            continue
        try:
            yield from pickle.loads(dump(True, with_lines, False)).get("entries") or ()
        except Exception:
            continue


def _call(entry: "Any") -> "Any":
    sizes, types = entry.get("input_sizes") or (), entry.get("input_dtypes") or ()
    shapes = ", ".join(
        f"{list(size)} {str(types[number]).lower() if number < len(types) else ''}".strip()
        for number, size in enumerate(sizes)
    )
    return {
        "number": entry.get("collective_seq_id"),
        "name": str(entry.get("profiling_name"))[:_TEXT],
        "shapes": shapes[:_TEXT],
        "done": bool(entry.get("retired")) or entry.get("state") == "completed",
        "where": _where(entry.get("frames") or ()),
    }


def _where(frames: "Any") -> str:
    """The user's line; frames are innermost first."""
    for frame in frames:
        file = str(frame.get("filename"))
        if not any(part in file for part in _LIBRARIES):
            return f"{file[-_TEXT:]} line {frame.get('line')}"
    return ""
