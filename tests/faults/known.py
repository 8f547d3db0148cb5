"""What can go wrong in a job, and what its error must say.

Owns: the corpus: one line a fault.
Leaves: the scripts to scripts.py, running them to corpus.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Fault:
    """`rank` None where the error is of the whole job; `says` are parts of message or hint.

    `code` may be one of several, with `|` between; `frame` is the file and line of the user's code
    that must be named.
    """

    name: str
    command: str
    code: str
    says: tuple[str, ...] = ()
    rank: int | None = 0
    nodes: int = 1
    processes: int = 1
    frame: str = ""
    exit_code: int | None = None
    status: str = "Failed"
    notice: str = ""
    properties: dict[str, str] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)


def _peers(name: str, command: str, rank: int, code: str = "exception", *says: str) -> Fault:
    """One of four ranks on two nodes fails, and the others lose their connections."""
    return Fault(name, command, code, says, rank=rank, nodes=2, processes=2)


_LABEL = "ValueError: bad label 7"
_CUDA = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB"
_NCCL = (
    "NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system error, NCCL version 2.20.5 "
    "ncclSystemError: System call (e.g. socket, malloc) or external library call failed"
)
_ECC = "CUDA error: uncorrectable ECC error encountered"
_ASSERT = "CUDA error: device-side assert triggered"

FAULTS: tuple[Fault, ...] = (
    # Exceptions, alone and among others
    Fault("exception", "python fail.py", "exception", (_LABEL,), frame="fail.py line 5"),
    Fault("exception-on-one-rank", "python only_rank.py 1", "exception", (_LABEL,), 1, 1, 2),
    Fault("exception-on-second-node", "python only_rank.py 3", "exception", (_LABEL,), 3, 2, 2),
    _peers("exception-others-lose-peer", "python peers.py 3", 3, "exception", _LABEL),
    _peers("exception-of-rank-0", "python peers.py 0", 0, "exception", _LABEL),
    _peers("exception-of-rank-2", "python peers.py 2", 2, "exception", _LABEL),
    Fault("exception-among-eight", "python peers.py 5", "exception", (_LABEL,), 5, 2, 4),
    _peers("leaves-the-group-first", "python leaves_first.py 2", 2, "exception", _LABEL),
    _peers("earliest-of-two", "python first_of_two.py", 2, "exception", "label of rank 2"),
    Fault("chained", "python chain.py", "exception", ("RuntimeError: config has no lr",)),
    Fault("exception-group", "python group.py", "exception", ("ExceptionGroup: 2 tasks failed",)),
    Fault("huge-message", "python unicode.py", "exception", ("ValueError: bad path",)),
    Fault("noise-after-error", "python noise.py", "exception", (_LABEL,), frame="noise.py line 7"),
    Fault("own-excepthook", "python own_hook.py", "exception", (_LABEL,)),
    Fault("attribute-of-none", "python attribute.py", "exception", ("AttributeError",)),
    Fault("bad-json", "python config.py", "exception", ("JSONDecodeError",), frame="config.py"),
    Fault("assertion", "python asserts.py", "assertion_failed", ("loss is NaN at step 12",)),
    Fault("recursion", "python recursion.py", "recursion_too_deep", ("RecursionError",)),
    # Other Pythons than the environment's, and switches that leave the hook out
    Fault("python-without-site", "python -S fail.py", "exception", (_LABEL,), frame="fail.py line"),
    Fault("python-isolated", "python -I fail.py", "exception", (_LABEL,)),
    Fault(
        "another-python",
        '"$(python -c "import sys; print(sys._base_executable)")" fail.py',
        "exception",
        (_LABEL,),
        frame="fail.py line 5",
    ),
    # Ends without an exception
    Fault(
        "sys-exit",
        "python exits.py",
        "exited",
        ("exited with code 3", "exits.py line 3"),
        exit_code=3,
    ),
    Fault("sys-exit-message", "python exits_saying.py", "exited", ("no checkpoint in ./model",)),
    Fault(
        "sys-exit-after-error",
        "python exits_after.py",
        "exited",
        ("code 4", "ZeroDivisionError"),
        frame="exits_after.py line 4",
    ),
    Fault(
        "sys-exit-swallows",
        "python exits_silently_after.py",
        "file_missing",
        ("/nowhere/train.csv",),
    ),
    Fault("os-exit", "python hard_exit.py", "hard_exit", ("code 5", "os._exit"), exit_code=5),
    Fault("os-exit-after-error", "python hard_exit_after.py", "exception", ("KeyError: 'lr'",)),
    Fault("system-exit", "python system_exit.py", "exited", ("code 6", "SystemExit"), exit_code=6),
    Fault("system-exit-after-bytes", "python bytes_then_exit.py", "exited", ("code 6",)),
    Fault(
        "closed-stdout",
        "python closed_stdout.py",
        "output_unwritten",
        ("could not write",),
        exit_code=120,
    ),
    Fault("closed-stdout-object", "python closed_stdout_object.py", "exited", ("code 6",)),
    Fault("exit-builtin", "python exit_builtin.py", "exited", ("code 9", "`exit`"), exit_code=9),
    Fault(
        "late-abort",
        "python late_abort.py",
        "",
        (),
        None,
        status="Completed",
        notice="after its script had ended successfully",
    ),
    Fault(
        "late-abort-below-shell",
        "python late_abort.py; exit $?",
        "",
        (),
        None,
        status="Completed",
        notice="after its script had ended successfully",
    ),
    Fault("late-abort-after-failure", "python late_abort_after_failure.py", "exception", (_LABEL,)),
    _peers("os-exit-among-peers", "python peer_exit.py 3", 3, "hard_exit", "code 5"),
    Fault("shell-exit", "echo no; exit 7", "rank_failed", ("exited with code 7",), exit_code=7),
    # Signals
    Fault(
        "segfault",
        "python segfault.py",
        "segmentation_fault",
        ("SIGSEGV",),
        frame="segfault.py line 4",
        exit_code=139,
    ),
    _peers(
        "segfault-among-peers", "python peer_signal.py 3 11", 3, "segmentation_fault", "SIGSEGV"
    ),
    Fault("abort", "python abort.py", "aborted", ("SIGABRT",), frame="abort.py line 3"),
    Fault("bus-error", "python bus.py", "bus_error", ("SIGBUS",), frame="bus.py line 7"),
    Fault("fpe", "python die.py 8", "arithmetic_fault", ("SIGFPE",)),
    Fault("illegal", "python die.py 4", "illegal_instruction", ("SIGILL",)),
    Fault("killed", "python die.py 9", "killed", ("SIGKILL",), exit_code=137),
    _peers("killed-among-peers", "python peer_signal.py 1 9", 1, "killed", "SIGKILL"),
    Fault("terminated", "python die.py 15", "terminated", ("SIGTERM",)),
    Fault("interrupted", "python die.py 2", "interrupted", ("KeyboardInterrupt",)),
    Fault("killed-below-shell", "python die.py 9; exit $?", "killed", ("SIGKILL", "137")),
    Fault(
        "segfault-below-python",
        "python grandchild.py",
        "segmentation_fault",
        ("SIGSEGV",),
        frame="segfault.py line 4",
    ),
    # The environment and the command
    Fault("package-missing", "python no_package.py", "import_failed", ("sklearn", "scikit-learn")),
    Fault(
        "package-missing-deep",
        "python no_package_nested.py",
        "import_failed",
        ("cv2", "opencv-python"),
        frame="helpers_of_mine.py line 1",
    ),
    Fault("name-missing", "python no_name.py", "import_failed", ("loadz",)),
    Fault("module-missing", "python -m trainer", "import_failed", ("trainer",)),
    Fault("syntax", "python syntax.py", "syntax_error", ("syntax.py",)),
    Fault("indentation", "python indent.py", "syntax_error", ("indent.py line 2",)),
    Fault(
        "command-not-found",
        "pyhton fail.py",
        "command_not_found",
        ("pyhton", "not found"),
        exit_code=127,
    ),
    Fault("not-executable", "./fail.py", "not_executable", ("fail.py", "chmod"), exit_code=126),
    Fault(
        "interpreter-missing",
        "printf '#!/no/such\\n' > run.sh; chmod +x run.sh; ./run.sh",
        "interpreter_missing",
        ("run.sh", "first line"),
    ),
    Fault("script-missing", "python trian.py", "script_missing", ("trian.py",), exit_code=2),
    Fault("bad-arguments", "python needs_arguments.py --foo 1", "usage_error", ("--lr",)),
    Fault("failing-pipe", "set -o pipefail; python fail.py | cat", "exception", (_LABEL,)),
    Fault(
        "hidden-by-pipe",
        "python fail.py | cat",
        "",
        (),
        None,
        status="Completed",
        notice="ValueError: bad label 7",
    ),
    Fault("cut-pipe", "set -o pipefail; yes | head -1", "broken_pipe", ("SIGPIPE",)),
    Fault("overcome-error", "python fail.py || sleep 6; exit 9", "rank_failed", ("code 9",)),
    Fault("error-then-own-code", "python fail.py || exit 9", "exception", (_LABEL, "code 9")),
    # Data, memory, disk, network
    Fault("data-missing", "python no_data.py", "file_missing", ("/data/imagenet/train.csv",)),
    Fault(
        "data-missing-in-loader",
        "python loader.py",
        "file_missing",
        ("/data/17.png", "train.py line 8"),
    ),
    Fault("no-rights", "python no_rights.py", "permission_denied", ("data.txt",)),
    Fault("disk-full", "python disk_full.py", "disk_full", ("No space left",)),
    Fault("memory-error", "python memory.py", "out_of_memory", ("MemoryError",)),
    Fault("too-many-files", "python files.py", "too_many_files", ("Too many open files",)),
    Fault("process-limit", "python forks.py", "too_many_processes", ("limit of processes",)),
    Fault("port-in-use", "python port.py", "port_in_use", ("already in use",)),
    Fault("no-server", "python no_server.py", "connection_failed", ("refused",)),
    # GPUs, by what their libraries say
    Fault("cuda-memory", f"python raises.py '{_CUDA}'", "cuda_out_of_memory", ("2.00 GiB",)),
    Fault("nccl", f"python raises.py '{_NCCL}'", "nccl_error", ("NCCL_DEBUG",)),
    Fault("ecc", f"python raises.py '{_ECC}'", "gpu_ecc_error", ("ECC",)),
    Fault("device-assert", f"python raises.py '{_ASSERT}'", "cuda_assert", ("LAUNCH_BLOCKING",)),
    # Processes below a rank
    Fault("thread", "python thread.py", "exception", ("ValueError: bad shard 3",)),
    Fault(
        "pool", "python pool.py", "exception", ("ValueError: bad shard 3",), frame="pool.py line 4"
    ),
    Fault("child", "python child.py", "exited", ("ValueError: bad shard 3",)),
    Fault("subprocess", "python subprocess_.py", "exception", (_LABEL,), frame="fail.py line 5"),
    # Written after the rules, to see how they do on what they were not made for
    Fault(
        "async-task",
        "python task.py",
        "exception",
        ("ValueError: bad shard 3",),
        frame="task.py line 4",
    ),
    Fault("broken-pool", "python broken_pool.py", "child_failed", ("BrokenProcessPool",)),
    Fault(
        "thread-pool",
        "python thread_pool.py",
        "exception",
        ("ValueError: bad shard 3",),
        frame="thread_pool.py line 4",
    ),
    Fault("own-words-for-a-child", "python own_error.py", "exception", ("tokenizer died with 3",)),
    Fault("coreutils-timeout", "timeout 1 python sleeps.py", "rank_failed", ("code 124",)),
    Fault("below-a-shell-script", "set -e\npython fail.py\necho never", "exception", (_LABEL,)),
    Fault("output-redirected", "python fail.py > out.txt 2>&1", "exception", (_LABEL,)),
    Fault("nothing-to-see", "python -S fail.py > /dev/null 2>&1", "rank_failed", ("code 1",)),
    Fault("exec", "exec python fail.py", "exception", (_LABEL,)),
    Fault(
        "from-stdin",
        "python - <<'END'\nraise ValueError('bad label 7')\nEND",
        "exception",
        (_LABEL, "<stdin> line 1"),
    ),
    Fault("cut-pickle", "python pickled.py", "exception", ("EOFError: Ran out of input",)),
    Fault("variable-missing", "python variable.py", "exception", ("KeyError: 'DATA_DIR'",)),
    Fault("circular-import", "python circular.py", "import_failed", ("circular",)),
    Fault("cpu-limit", "ulimit -S -t 1; python busy.py", "signaled", ("SIGXCPU", "CPU time")),
    Fault(
        "own-faulthandler",
        "python own_faulthandler.py",
        "segmentation_fault",
        ("SIGSEGV",),
        frame="own_faulthandler.py line 5",
    ),
    Fault("saves-when-told", "python handles_term.py", "exception", (_LABEL,), 1, 2, 1),
    Fault("logged-then-exit", "python logged.py", "exception", (_LABEL,), frame="logged.py line 4"),
    Fault("bad-bytes", "python decode.py", "exception", ("UnicodeDecodeError",)),
    Fault("thread-outlives", "python main_waits.py", "exception", (_LABEL,)),
    Fault("no-folder", "cd checkpoints && python fail.py", "file_missing", ("checkpoints",)),
    Fault("shell-syntax", "if then echo; fi", "shell_syntax", ("syntax error",), exit_code=2),
    Fault("no-shell-variable", "set -u; python fail.py $DATA", "shell_syntax", ("DATA: unbound",)),
    # Those that get nowhere, and the node itself
    Fault(
        "never-joins",
        "python late.py",
        "rendezvous_timeout",
        ("rank 3", "late.py line 4"),
        3,
        2,
        2,
        properties={"torchyard.rendezvous_timeout_s": "3"},
    ),
    Fault(
        "hangs",
        "python hangs.py",
        "hang",
        ("rank 0: hangs.py line 5", "rank 3: hangs.py"),
        None,
        2,
        2,
        properties={"torchyard.hang_after_s": "4", "torchyard.hang_action": "fail"},
    ),
    Fault(
        "too-long", "python sleeps.py", "timeout", ("limits.timeout",), None, limits={"timeout": 2}
    ),
    Fault("worker-killed", "python kills_worker.py", "worker_lost", ("node 1",), None, 2, 1),
)

# What CI runs: all that several ranks have to do with, and every second one of the others.
BOUNDED = tuple(
    fault
    for number, fault in enumerate(FAULTS)
    if number % 2 == 0 or fault.nodes * fault.processes > 1
)
