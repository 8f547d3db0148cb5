"""The diagnosis of failed ranks: from the files they leave to the failure's message."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import failure_codes_page
from torchyard.worker.diagnosis import artifacts, cause_rules, causes, diagnosis, hidden_failures
from torchyard.worker.diagnosis.context import DiagnosisContext
from torchyard.worker.launch.ranks import Rank, RankExit
from torchyard.worker.system.memory_kills import MemoryKills

NOW = 1_800_000_000.0

# Messages of libraries, and their codes in a job of several ranks.
MESSAGES = [
    ("mlflow.exceptions.MlflowException: Could not find a registered artifact repository for: "
     "mlflow-artifacts:/1/r/artifacts. Currently registered schemes are: ['', 'file']",
     "mlflow_too_old"),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20 MiB", "cuda_out_of_memory"),
    ("RuntimeError: CUDA error: out of memory", "cuda_out_of_memory"),
    ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "gpu_ecc_error"),
    ("RuntimeError: CUDA error: unspecified launch failure", "gpu_lost"),
    ("RuntimeError: CUDA error: an illegal memory access was encountered", "cuda_error"),
    ("bash: line 1: ./x.sh: /no/such: bad interpreter: No such file", "interpreter_missing"),
    ("/bin/bash: line 1: ./x: cannot execute: required file not found", "interpreter_missing"),
    ("/usr/bin/env: 'python\\r': No such file or directory", "interpreter_missing"),
    ("Usage: train.py [OPTIONS]\n\nError: No such option '--stepz'.", "usage_error"),
    ("Error: Invalid value for '--steps': 'x' is not a valid integer.", "usage_error"),
    ("click.exceptions.MissingParameter: Missing parameter: steps", "usage_error"),
    ("argparse.ArgumentError: argument --lr: expected one argument", "usage_error"),
    ("train.cu(3): error: expected a declaration", None),
    ('k.cu(12): error: argument of type "float *" is incompatible with "int *"', None),
    ('train.py:3: error: argument 1 to "f" has incompatible type', None),
    ("Error: Invalid value for variable", None),
    ("tool: error: argument -b/--batch-size: expected one argument", "usage_error"),
    ("bash: fork: retry: Resource temporarily unavailable", "too_many_processes"),
    ("/bin/sh: 1: Cannot fork", "too_many_processes"),
    ("RuntimeError: can't start new thread", "too_many_processes"),
    (
        "OpenBLAS blas_thread_init: pthread_create failed for thread 3 of 4: Resource temporarily "
        "unavailable",
        "too_many_processes",
    ),
    ("BlockingIOError: [Errno 11] Resource temporarily unavailable", None),
    ("RuntimeError: CUDA error: device-side assert triggered", "cuda_assert"),
    ("AssertionError: Torch not compiled with CUDA enabled", "cuda_missing"),
    ("RuntimeError: No CUDA GPUs are available", "cuda_missing"),
    ("torch.AcceleratorError: CUDA error: invalid device ordinal", "cuda_device_missing"),
    ("torch.distributed.DistBackendError: NCCL error in: x.cpp:1, ncclSystemError", "nccl_error"),
    ("RuntimeError: The server socket has failed to bind to [::]:29500 "
     "(errno: 98 - Address already in use).", "port_in_use"),
    ("RuntimeError: [/opt/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
     "[127.0.0.1]:43210", "peer_lost"),
    ("torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving "
     "ncclUniqueId from [0] via c10d key-value store, but store->get('0') got error: Connection "
     "reset by peer", "peer_lost"),
    ("OSError: [Errno 107] Transport endpoint is not connected", "peer_lost"),
    ("torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the "
     "C10d store has failed. See inner exception for details.", "rendezvous_unreachable"),
    ("botocore.exceptions.EndpointConnectionError: Could not connect to the endpoint URL",
     "connection_failed"),
    ("torch.distributed.DistStoreError: Timed out after 31 seconds waiting for clients. 1/2 "
     "clients joined.", "rendezvous_timeout"),
    ("RuntimeError: [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(...)",
     "collective_timeout"),
    ("RuntimeError: unable to write to file </torch_12_34>: No space left on device (28)",
     "shared_memory_full"),
    ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that "
     "dataloader's workers are out of shared memory.", "shared_memory_full"),
    ("RuntimeError: DataLoader worker (pid(s) 7) exited unexpectedly", "data_worker_lost"),
    ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.", "out_of_memory"),
    ("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.45 TiB", "out_of_memory"),
    ("RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't "
     "allocate memory: you tried to allocate 9 bytes", "out_of_memory"),
    ("OSError: [Errno 28] No space left on device: 'model.pt'", "disk_full"),
    ("RuntimeError: [enforce fail at inline_container.cc:595] . PytorchStreamWriter failed "
     "writing file data/0: file write failed", "disk_full"),
    ("OSError: [Errno 5] Input/output error", "io_error"),
    ("OSError: [Errno 30] Read-only file system: '/inputs/x'", "read_only"),
    ("ModuleNotFoundError: No module named 'yaml'", "import_failed"),
    ("env/bin/python: Error while finding module specification for 'train.py' (ModuleNotFoundError:"
     " __path__ attribute not found on 'train' while trying to find 'train.py')", "import_failed"),
    ('launch.sh: 3: Syntax error: "(" unexpected', "shell_syntax"),
    ("/tmp/x/run.sh: 5: Bad substitution", "shell_syntax"),
    ("/bin/bash: line 1: ${X^^^}: bad substitution", "shell_syntax"),
    ("urllib.error.URLError: <urlopen error [Errno 111] Connection refused>", "connection_failed"),
    ("requests.exceptions.ConnectionError: ('Connection aborted.', RemoteDisconnected('Remote end "
     "closed connection without response'))", "connection_failed"),
    ("ConnectionRefusedError: [Errno 111] Connection refused", "peer_lost"),
    ("urllib.error.URLError: <urlopen error [SSL: WRONG_VERSION_NUMBER] wrong version number>",
     "connection_failed"),
    ("requests.exceptions.HTTPError: 429 Client Error: Too Many Requests for url: https://x/y",
     "connection_failed"),
    ("httpx.HTTPStatusError: Client error '404 Not Found' for url 'https://x/y'",
     "connection_failed"),
    ("ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from "
     "C header, got 88 from PyObject", "import_failed"),
    ("AttributeError: `np.float_` was removed in the NumPy 2.0 release.",
     "import_failed"),
    ("RuntimeError: Numpy is not available", "import_failed"),
    ("/bin/bash: line 1: cd: src: No such file or directory", "file_missing"),
    ("RuntimeError: Unable to retrieve .NET dependencies. Please make sure you are connected to "
     "the Internet and have a stable network connection.", "import_failed"),
    ("mlflow.exceptions.MlflowException: Run with id=tough_shirt_384o7i3p1p not found",
     "mlflow_run_elsewhere"),
    ("ImportError: libGL.so.1: cannot open shared object file: No such file or directory",
     "import_failed"),
    ("FileNotFoundError: [Errno 2] No such file or directory: 'a.csv'", "file_missing"),
    ("PermissionError: [Errno 13] Permission denied: '/data'", "permission_denied"),
    ("RuntimeError: Error(s) in loading state_dict for Net:", "checkpoint_mismatch"),
    ("KeyError: 'connection'", None),
    ("KeyError: 'OMPI_COMM_WORLD_RANK'", "not_distributed"),
    ("KeyError: 'LOCAL_RANK'", "not_distributed"),
    ("KeyError: 'RANKS'", None),
    ("ValueError: Error initializing torch.distributed using env:// rendezvous: environment "
     "variable RANK expected, but not set", "not_distributed"),
    ("ValueError: too many values to unpack (expected 2)", None),
    ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x3 and 5x2)", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "code"), MESSAGES)
def test_messages_of_libraries_have_codes(text: str, code: str | None) -> None:
    match = causes.match_text(text, has_peers=True)
    assert (match.code if match else None) == code


def test_the_page_of_codes_is_up_to_date() -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "failure-codes.md"
    assert page.read_text(encoding="utf-8") == failure_codes_page.page(), "run `make docs`"


def test_every_hint_can_be_filled_in_and_has_no_full_stop() -> None:
    assert failure_codes_page.page().count("| `") > 40
    for rule in cause_rules.RULES:
        assert not rule.hint.endswith(".")


def test_the_hint_names_the_package_to_install() -> None:
    match = causes.match_text("ModuleNotFoundError: No module named 'sklearn.svm'", has_peers=False)
    assert match is not None and "`scikit-learn`" in match.hint
    assert causes.package("torch.nn") == "torch"
    assert causes.package("azureml.core.run") == "azureml-core"
    assert causes.package("azureml.mlflow") == "azureml-mlflow"
    assert causes.package("azure.ai.ml.entities") == "azure-ai-ml"
    assert causes.package("pkg_resources") == "setuptools<81"


@pytest.mark.parametrize(
    ("text", "is_numpy_1"),
    [
        ("ImportError: numpy.core.multiarray failed to import", True),
        ("ValueError: numpy.dtype size changed, may indicate binary incompatibility. "
         "Expected 96 from C header, got 88 from PyObject", True),
        # The other way round: made for NumPy 2, run with NumPy 1.
        ("ValueError: numpy.dtype size changed, may indicate binary incompatibility. "
         "Expected 88 from C header, got 96 from PyObject", False),
    ],
)  # fmt: skip
def test_the_hint_says_which_numpy_to_add(text: str, is_numpy_1: bool) -> None:
    match = causes.match_text(text, has_peers=False)
    assert (match is not None and "`numpy<2`" in match.hint) is is_numpy_1


def test_a_lost_connection_is_a_consequence_only_with_other_ranks() -> None:
    text = "ConnectionResetError: [Errno 104] Connection reset by peer"
    without_peers, with_peers = (
        causes.match_text(text, has_peers=has_peers) for has_peers in (False, True)
    )
    assert without_peers is not None and (without_peers.code, without_peers.consequence) == (
        "connection_failed",
        False,
    )
    assert with_peers is not None and (with_peers.code, with_peers.consequence) == (
        "peer_lost",
        True,
    )


# Tracebacks

CHAINED = """\
noise
[rank3]: Traceback (most recent call last):
[rank3]:   File "/w/work/data.py", line 3, in read
[rank3]:     return config["lr"]
[rank3]: KeyError: 'lr'

[rank3]: During handling of the above exception, another exception occurred:

[rank3]: Traceback (most recent call last):
[rank3]:   File "/w/work/train.py", line 9, in <module>
[rank3]:     main()
[rank3]:   File "/env/lib/python3.11/site-packages/click/core.py", line 7, in main
[rank3]:     call()
[rank3]: my.errors.ConfigError: no lr
in two lines

epoch 3
"""


def test_the_last_traceback_of_a_log_is_found(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(CHAINED)
    trace = artifacts.last_trace(artifacts.log_tail(log))
    assert trace is not None
    assert trace.title == "my.errors.ConfigError: no lr\nin two lines"
    frame = artifacts.user_frame(trace.frames)
    assert frame is not None and (frame.file, frame.line) == ("/w/work/train.py", 9)


@pytest.mark.parametrize(
    "text", ["", "no error", "Traceback (most recent call last):\n  File", "\0"]
)
def test_other_text_is_not_a_traceback(text: str) -> None:
    assert artifacts.last_trace(text) is None


def test_stacks_of_the_main_thread_and_the_crashed_thread_are_found() -> None:
    dump = (
        "Fatal Python error: Segmentation fault\n\nThread 0x1 (most recent call first):\n"
        '  File "a.py", line 1 in reader\n\nCurrent thread 0x2 (most recent call first):\n'
        '  File "b.py", line 2 in inner\n  File "b.py", line 3 in <module>\n\n'
        'Thread 0x3 (most recent call first):\n  File "c.py", line 4 in main\n'
    )
    assert [frame.line for frame in artifacts.stack_frames(dump)] == [3, 2]
    assert [frame.line for frame in artifacts.stack_frames(dump, of_main=True)] == [4]


# Root causes


@pytest.fixture
def context(tmp_path: Path) -> DiagnosisContext:
    no_kills = MemoryKills(tmp_path / "no-cgroups", tmp_path / "no-proc")
    return DiagnosisContext(1, True, tmp_path / "work", tmp_path / "errors", no_kills)


def record(
    context: DiagnosisContext,
    rank: int,
    at: float,
    type_name: str,
    message: str,
    /,
    **extra: object,
) -> None:
    folder = context.records_folder(rank)
    folder.mkdir(parents=True, exist_ok=True)
    line = f'  File "{context.work}/train.py", line 4, in step\n    go()\n'
    body = {
        "kind": "exception", "type": type_name, "message": message, "at": at, "started": at - 9,
        "traceback": f"Traceback (most recent call last):\n{line}{type_name}: {message}\n",
        "pid": 70 + rank, "parent": 1, "status": None, "said": None, "callers": [], **extra,
    }  # fmt: skip
    (folder / f"{at:.3f}.json").write_text(json.dumps(body))


def ended(rank: int, at: float, code: int = 1, **extra: Any) -> RankExit:
    log = Path(f"/nowhere/{rank}")
    values: dict[str, Any] = {"signal": 0, "pid": 70 + rank, "at": at, **extra}
    return RankExit(Rank(rank, rank, log, f"user_logs/std_log_process_{rank}.txt"), code, **values)


LOST = ("ConnectionResetError", "[Errno 104] Connection reset by peer")


def test_a_cause_precedes_a_consequence_even_if_that_rank_ended_first(
    context: DiagnosisContext,
) -> None:
    record(context, 1, NOW, *LOST)
    record(context, 3, NOW + 0.4, "ValueError", "bad")
    exits = [ended(1, NOW + 0.1), ended(3, NOW + 0.5)]
    failure = diagnosis.root_cause(exits, context, NOW + 0.6)
    assert failure is not None
    assert failure.message == (
        "rank 3 on node 1 exited with code 1: ValueError: bad (train.py line 4, in step)"
    )
    assert failure.details["rank"] == 3 and not failure.details["consequence"]
    assert failure.details["frames"] == [
        {"file": "train.py", "line": 4, "function": "step", "code": "go()"}
    ]


@pytest.mark.parametrize(
    ("line", "code"),
    [("if os.fork() == 0:", "too_many_processes"), ("fcntl.flock(file, LOCK_NB)", "exception")],
)
def test_a_refused_fork_is_told_from_a_locked_file(
    line: str, code: str, context: DiagnosisContext
) -> None:
    text = "[Errno 11] Resource temporarily unavailable"
    trace = (
        f'Traceback (most recent call last):\n  File "train.py", line 4, in step\n    {line}\n'
        f"BlockingIOError: {text}\n"
    )
    record(context, 1, NOW, "BlockingIOError", text, traceback=trace)
    failure = diagnosis.root_cause([ended(1, NOW)], context, NOW + 1)
    assert failure is not None and failure.code == code


def test_an_error_before_an_abort_is_the_cause(context: DiagnosisContext) -> None:
    record(context, 1, NOW, "ValueError", "bad")
    failure = diagnosis.root_cause([ended(1, NOW, 134, signal=6)], context, NOW + 1)
    assert failure is not None and failure.code == "exception"


def test_the_earlier_of_two_causes_is_reported(context: DiagnosisContext) -> None:
    record(context, 0, NOW + 0.2, "ValueError", "second")
    record(context, 2, NOW + 0.1, "ValueError", "first")
    failure = diagnosis.root_cause([ended(0, NOW + 0.3), ended(2, NOW + 0.4)], context, NOW + 1)
    assert failure is not None and failure.details["rank"] == 2


@pytest.mark.parametrize(("later_s", "cause"), [(0.3, 1), (60.0, 0)])
@pytest.mark.parametrize(("code", "signum"), [(143, 0), (143, 15)])
def test_the_exception_of_a_rank_precedes_its_terminated_neighbour(
    context: DiagnosisContext, code: int, signum: int, later_s: float, cause: int
) -> None:
    # mpirun terminates rank 0, which ends before rank 1 has written what it died of.
    record(context, 1, NOW + later_s, "ValueError", "bad sample")
    exits = [ended(0, NOW, code, signal=signum), ended(1, NOW + later_s + 0.2)]
    failure = diagnosis.root_cause(exits, context, NOW + later_s + 1)
    assert failure is not None and failure.details["rank"] == cause


def test_a_stopped_rank_may_have_failed_before(context: DiagnosisContext) -> None:
    record(context, 1, NOW, *LOST)
    record(context, 2, NOW - 0.2, "ValueError", "slow to end")
    stopped_exits = ended(2, NOW + 2, 143, signal=15, stop_requested=True)
    failure = diagnosis.root_cause([ended(1, NOW + 0.1), stopped_exits], context, NOW + 0.2)
    assert failure is not None and failure.message.startswith("rank 2 on node 1 failed: ValueError")


@pytest.mark.parametrize(
    ("code", "signum"), [(3, 0), (120, 0), (126, 0), (127, 0), (137, 0), (137, 9), (139, 11)]
)
def test_the_exit_code_of_the_cause_is_the_jobs(
    code: int, signum: int, context: DiagnosisContext
) -> None:
    exits = [ended(2, NOW + 1), ended(1, NOW, code, signal=signum)]
    failure = diagnosis.root_cause(exits, context, NOW + 2)
    assert failure is not None and failure.exit_code == code


def test_failures_after_a_stop_are_not_the_cause(context: DiagnosisContext) -> None:
    record(context, 0, NOW + 0.5, "RuntimeError", "interrupted by SIGTERM")
    stopped_exits = [
        ended(0, NOW + 1, stop_requested=True),
        ended(1, NOW + 1, 143, signal=15, stop_requested=True),
    ]
    assert diagnosis.root_cause(stopped_exits, context, NOW) is None


def test_a_consequence_is_reported_without_another_cause(context: DiagnosisContext) -> None:
    record(context, 1, NOW, *LOST)
    failure = diagnosis.root_cause([ended(1, NOW)], context, NOW)
    assert failure is not None and failure.code == "peer_lost" and failure.details["consequence"]


def test_the_error_of_a_child_precedes_its_launchers(context: DiagnosisContext) -> None:
    record(context, 0, NOW - 3, "ValueError", "of an earlier program", started=NOW - 8)
    record(context, 0, NOW - 1, "ValueError", "of the worker")
    record(context, 0, NOW, "torch.distributed.elastic.ChildFailedError", "see", started=NOW - 2)
    failure = diagnosis.root_cause([ended(0, NOW + 0.1)], context, NOW + 1)
    assert failure is not None and "of the worker" in failure.message


def test_a_rank_killed_by_the_kernel_ran_out_of_memory(
    context: DiagnosisContext, tmp_path: Path
) -> None:
    cgroups, proc = tmp_path / "cgroups", tmp_path / "proc"
    cgroups.mkdir()
    events = cgroups / "memory.events"
    events.write_text("low 0\noom 1\noom_kill 1\n")
    kills = MemoryKills(cgroups, proc)
    assert not kills.happened()
    killed = ended(1, NOW, 137, signal=9, memory_bytes=3 << 30)
    current_context = DiagnosisContext(1, True, context.work, context.errors, kills)
    assert diagnosis.diagnose(killed, current_context).failure.code == "killed"
    events.write_text("low 0\noom 2\noom_kill 2\n")
    failure = diagnosis.diagnose(killed, current_context).failure
    assert failure.code == "out_of_memory" and "3.0 GiB" in failure.message


def test_memory_kills_are_counted_with_cgroups_v1_and_per_machine(tmp_path: Path) -> None:
    cgroups, proc = tmp_path / "cgroups", tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text("4:memory:/job\n1:name=systemd:/\n0::/other\n")
    control = cgroups / "memory" / "job" / "memory.oom_control"
    control.parent.mkdir(parents=True)
    for file, before, after in (
        (control, "under_oom 0\noom_kill 0\n", "under_oom 0\noom_kill 1\n"),
        (proc / "vmstat", "nr_free 7\noom_kill 4\n", "nr_free 7\noom_kill 5\n"),
    ):
        file.write_text(before)
        kills = MemoryKills(cgroups, proc)
        assert not kills.happened()
        file.write_text(after)
        assert kills.happened()


def test_invalid_records_are_ignored(context: DiagnosisContext) -> None:
    folder = context.records_folder(0)
    folder.mkdir(parents=True)
    for number, text in enumerate(["", "{", "[]", '{"type": 3}', "null"]):
        (folder / f"{number}.json").write_text(text)
    (folder / "9.json").write_bytes(b"\xff\xfe")
    failure = diagnosis.root_cause([ended(0, time.time())], context, time.time())
    assert failure is not None and failure.message == "rank 0 on node 1 exited with code 1"


def test_a_failure_with_any_text_can_be_encoded(context: DiagnosisContext) -> None:
    record(context, 0, NOW, "ValueError", "half \udcff and \0")
    failure = diagnosis.root_cause([ended(0, NOW)], context, NOW)
    assert failure is not None
    json.dumps(failure.to_dict(), ensure_ascii=False).encode()
    assert "\\u0000" not in json.dumps(failure.to_dict())


@pytest.mark.parametrize(
    ("recorded", "message", "rank"),
    [
        ("2", "bad", 2),
        ("", "bad", 1),
        ("x", "bad", 1),
    ],
)
def test_below_a_launcher_the_rank_is_the_one_that_the_script_sees(
    context: DiagnosisContext, recorded: str, message: str, rank: int
) -> None:
    record(context, 1, NOW, "ValueError", message, rank=recorded)
    failure = diagnosis.root_cause([ended(1, NOW)], context, NOW + 1)
    assert failure is not None
    assert failure.message.startswith(f"rank {rank} on node 1 exited with code 1: ValueError: bad")
    assert failure.details["rank"] == 1
    assert failure.details.get("script_rank", 1) == rank


def test_a_rank_that_a_launcher_lists_is_named(context: DiagnosisContext) -> None:
    listed = (
        "\n=====\ntrain.py FAILED\n-----\nRoot Cause (first observed failure):\n[0]:\n"
        "  time      : 2026-01-01_00:00:00\n  host      : node\n  rank      : 5 (local_rank: 1)\n"
        "  exitcode  : -9 (pid: 71)\n"
    )
    name = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"
    record(context, 1, NOW, name, listed, rank="1")
    failure = diagnosis.root_cause([ended(1, NOW)], context, NOW + 1)
    assert failure is not None
    assert failure.message.startswith("rank 5 on node 1 was killed by signal 9 (SIGKILL)")
    assert failure.exit_code == 1, "the launcher's"


def test_the_jobs_own_path_is_named_where_it_hides_a_program(
    context: DiagnosisContext, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.write_text("/bin/bash: line 1: python: command not found\n")
    exit = RankExit(Rank(0, 0, log, "user_logs/std_log.txt"), 127, signal=0, pid=70, at=NOW)
    assert "does not exist on the node" in diagnosis.diagnose(exit, context).failure.hint
    own_path = replace(context, own_path="/opt/tools/bin:$PATH")
    assert diagnosis.diagnose(exit, own_path).failure.hint == (
        "the job's own variable `PATH` replaces the node's and has no such program: write "
        "`export PATH=FOLDER:$PATH` in the command instead, or the program's full path"
    )


@pytest.mark.parametrize("limit", ["ulimit -v 1000000", "ulimit -S -v 1000000", "ulimit -Sv 1"])
def test_a_limit_of_the_command_is_named_where_memory_runs_out(
    context: DiagnosisContext, limit: str
) -> None:
    record(context, 0, NOW, "MemoryError", "")
    hint = diagnosis.diagnose(ended(0, NOW), context).failure.hint
    assert "the machine ran out" not in hint and "`ulimit -v`" in hint
    limited = replace(context, command=f"{limit}; python train.py")
    assert diagnosis.diagnose(ended(0, NOW), limited).failure.hint == (
        "the command limits the memory of its programs by `ulimit`: raise that limit or leave it "
        "out"
    )


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (["<string>"], "`python -c`"),
        (["<stdin>"], "standard input"),
        (["/work/train.py", "<string>"], "`eval` or `exec`"),
        (["<string>", "<string>"], "`eval` or `exec`"),
        (["/work/train.py", "/lib/python3.11/ast.py", "<unknown>"], "`eval` or `exec`"),
        (["/work/train.py"], "the file is not valid"),
        (["<string>", "/work/model.py"], "the file is not valid"),
        (["<frozen runpy>", "/work/model.py"], "the file is not valid"),
        (["<fstring>"], "the file is not valid"),
    ],
)
def test_a_syntax_error_points_at_the_text_that_has_it(
    context: DiagnosisContext, files: list[str], words: str
) -> None:
    frames = [f'  File "{file}", line 2, in <module>' for file in files[:-1]]
    frames.append(f'  File "{files[-1]}", line 1')
    log = context.work.parent / "log"
    log.write_text(
        "\n".join(["Traceback (most recent call last):", *frames, "SyntaxError: invalid syntax"])
    )
    exit = RankExit(Rank(0, 0, log, "log"), 1, 0, 70, NOW)
    failure = diagnosis.diagnose(exit, context).failure
    assert failure.code == "syntax_error" and words in failure.hint


@pytest.mark.parametrize(
    ("frames", "message", "description"),
    [
        (['"<string>", line 1, in <module>', '"<frozen os>", line 679, in __getitem__'],
         "KeyError: 'A'", "KeyError: 'A' (<string> line 1)"),
        (['"<string>", line 2, in <module>', '"/lib/python3.11/json/decoder.py", line 9, in raw'],
         "ValueError: x", "ValueError: x (<string> line 2)"),
        (['"/work/train.py", line 3, in <module>', '"<string>", line 1, in __init__'],
         "ValueError: x", "ValueError: x (/work/train.py line 3)"),
        (['"/site-packages/tool.py", line 4, in <module>', '"<frozen os>", line 225, in makedirs'],
         "OSError: x", "OSError: x (/site-packages/tool.py line 4)"),
        (['"<string>", line 7'], "SyntaxError: invalid syntax (<string>, line 7)",
         "SyntaxError: invalid syntax (<string>, line 7)"),
    ],
)  # fmt: skip
def test_an_error_is_told_at_the_users_own_text(
    context: DiagnosisContext, frames: list[str], message: str, description: str
) -> None:
    assert failure_of(context, frames, message).message.endswith(f": {description}")


def test_a_program_that_a_script_can_not_start_is_named(context: DiagnosisContext) -> None:
    frames = ['"t.py", line 3, in <module>', '"/lib/python3.11/subprocess.py", line 9, in run',
              '"/lib/python3.11/subprocess.py", line 10, in _execute_child']  # fmt: skip
    message = "FileNotFoundError: [Errno 2] No such file or directory: 'ffmpeg'"
    failure = failure_of(context, frames, message)
    assert failure.code == "command_not_found" and "`ffmpeg` does not exist" in failure.hint
    message = "FileNotFoundError: [Errno 2] No such file or directory: '/data/x'"
    assert failure_of(context, frames, message).code == "file_missing"


def failure_of(context: DiagnosisContext, frames: list[str], message: str) -> Any:
    """The failure of a rank whose log ends with this traceback."""
    log = context.work.parent / "log"
    lines = [f"  File {frame}" for frame in frames]
    log.write_text("\n".join(["Traceback (most recent call last):", *lines, message]))
    return diagnosis.diagnose(RankExit(Rank(0, 0, log, "log"), 1, 0, 70, NOW), context).failure


@pytest.mark.parametrize(
    ("message", "headline"),
    [
        ("Error(s) in loading:\n\tMissing key(s): a\n\tmore",
         "Error(s) in loading: Missing key(s): a"),
        ("first:\nsecond:\nthird\nmore", "first: second: third"),
        ("only:", "only:"),
        ("Errors:\nIn a.yml:\n\n  no such key\nmore", "Errors: In a.yml: no such key"),
        ("\nthe reason\nmore", "the reason"),
        ("plain", "plain"),
    ],
)  # fmt: skip
def test_a_headline_that_ends_in_a_colon_has_the_next_line(
    context: DiagnosisContext, message: str, headline: str
) -> None:
    record(context, 0, NOW, "RuntimeError", message)
    assert f"RuntimeError: {headline}" in diagnosis.diagnose(ended(0, NOW), context).failure.message


def test_a_folder_that_cd_misses_is_told_from_where_paths_count() -> None:
    text = "/bin/bash: line 1: cd: src: No such file or directory"
    match = causes.match_text(text, has_peers=False)
    assert match is not None and "with `code: src` there is no `src` in it" in match.hint


def test_an_exception_group_is_told_by_its_first_error() -> None:
    text = (
        "  + Exception Group Traceback (most recent call last):\n"
        '  |   File "train.py", line 10, in <module>\n'
        "  | ExceptionGroup: some shards failed (2 sub-exceptions)\n"
        "  +-+---------------- 1 ----------------\n"
        "    | Traceback (most recent call last):\n"
        '    |   File "train.py", line 4, in load\n'
        "    | ValueError: bad shard 3\n"
        "    +---------------- 2 ----------------\n"
        "    | Traceback (most recent call last):\n"
        '    |   File "train.py", line 4, in load\n'
        "    | ValueError: bad shard 5\n"
        "    +------------------------------------\n"
    )
    group = artifacts.Trace("ExceptionGroup", "some shards failed (2 sub-exceptions)", (), text)
    error = artifacts.original_error(group)
    assert error.title == "ValueError: bad shard 3"
    assert [(frame.file, frame.line) for frame in error.frames] == [("train.py", 4)]


PARSER = "/usr/lib/python3.11/argparse.py"
PARSED = [[PARSER, 2600, "exit"], [PARSER, 2613, "error"], ["/x/options.py", 9, "parse"]]


@pytest.mark.parametrize(
    ("callers", "log", "code", "words"),
    [
        (PARSED, "train.py: error: the warmup is too long", "usage_error",
         "code 2: train.py: error: the warmup is too long (/x/options.py line 9, in parse)"),
        (PARSED, "train.py: error: argument --lr: invalid float value: 'x'", "usage_error",
         "invalid float value: 'x' (/x/options.py line 9, in parse)"),
        (PARSED, "train.py: error: the warmup is too long\nwandb: run finished", "usage_error",
         "code 2: train.py: error: the warmup is too long (/x/options.py line 9, in parse)"),
        (PARSED, "nothing said", "usage_error",
         "code 2: sys.exit (/x/options.py line 9, in parse)"),
        ([PARSED[0], PARSED[2]], "error: see above", "exited",
         "sys.exit (/x/options.py line 9, in parse), after it printed `error: see above`"),
        ([PARSED[0], PARSED[1], ["/env/bin/tool", 8, "<module>"]], "tool: error: no such plan",
         "usage_error", "code 2: tool: error: no such plan"),
        ([PARSED[2]], "train.py: error: my own words", "exited", "sys.exit (/x/options.py line 9,"),
    ],
)  # fmt: skip
def test_arguments_that_a_script_refuses_are_told_at_its_own_line(
    context: DiagnosisContext, callers: list[Any], log: str, code: str, words: str
) -> None:
    record(context, 0, NOW, "", "", kind="exit", status=2, traceback="", callers=callers)
    failure = diagnosis.diagnose(with_log(context, f"usage: train.py\n{log}\n", 2), context).failure
    assert failure.code == code and words in failure.message


def with_log(context: DiagnosisContext, text: str, code: int) -> RankExit:
    log = context.work.parent / "log"
    log.write_text(text)
    return RankExit(Rank(0, 0, log, "log"), code, 0, 70, NOW)


def test_an_argument_that_can_not_be_parsed_is_told_at_the_users_line(
    context: DiagnosisContext,
) -> None:
    message = r"argument --plan: invalid choice: 'cosine\r' (choose from 'cosine')"
    trace = f'  File "{PARSER}", line 5, in _check\n    raise\nargparse.ArgumentError: {message}\n'
    record(
        context, 0, NOW, "argparse.ArgumentError", message, kind="exit", status=2, callers=PARSED,
        traceback=f"Traceback (most recent call last):\n{trace}",
    )  # fmt: skip
    said = "/bin/bash: line 1: STEPS: command not found\nrun.sh: line 3: cd: src: No such file"
    failure = diagnosis.diagnose(with_log(context, f"{said}\n{trace}", 2), context).failure
    assert failure.code == "usage_error" and "Windows line endings" in failure.hint
    assert failure.message.endswith(
        f"{message}, then sys.exit (/x/options.py line 9, in parse), after the shell said "
        "`run.sh: line 3: cd: src: No such file`"
    )


def test_refused_arguments_are_told_only_where_they_ended_the_rank(
    context: DiagnosisContext,
) -> None:
    # A script tried a program of another version, went on without it and ended itself.
    record(context, 0, NOW - 2, "", "", kind="exit", status=2, traceback="", callers=PARSED)
    log = "probe.py: error: unrecognized arguments: --json\nfalling back\ngiving up\n"
    failure = diagnosis.diagnose(with_log(context, log, 3), context).failure
    assert failure.code == "exited" and "printed `giving up`" in failure.message


@pytest.mark.parametrize(
    ("code", "message", "text", "is_told"),
    [
        ("exited", "no data", "run.sh: line 3: x: command not found", True),
        ("exited", "no data", "/bin/sh: 1: x: not found", True),
        ("exited", "no data", "run.sh: line 3: note: all is well", False),
        ("exited", "no data", "settings.ini: 14: learning_rate: not found", False),
        ("exited", "no data", "z.sh: line 3: x: command not found\n" + "step\n" * 50, False),
        ("exited", "sh: 1: x: not found", "sh: 1: x: not found", False),
        ("cuda_out_of_memory", "CUDA out of memory", "sh: 1: x: not found", False),
    ],
)
def test_what_a_shell_says_is_told_only_where_it_may_be_why(
    code: str, message: str, text: str, is_told: bool, context: DiagnosisContext
) -> None:
    record(context, 0, NOW, "", "", kind="exit", status=1, traceback="", said=message)
    failure = diagnosis.diagnose(with_log(context, text, 1), context).failure
    assert failure.code == code and ("the shell said" in failure.message) == is_told


def test_what_a_shell_says_is_not_told_of_an_error_of_the_script(context: DiagnosisContext) -> None:
    record(context, 0, NOW, "ValueError", "lr must be positive")
    exit = with_log(context, "run.sh: line 3: x: command not found\n", 1)
    assert "the shell said" not in diagnosis.diagnose(exit, context).failure.message


@pytest.mark.parametrize(
    ("name", "message", "is_told"),
    [
        ("ValueError", r"no such optimizer: 'adam\r'", True),
        ("FileNotFoundError", r"[Errno 2] No such file or directory: 'train.txt\r'", True),
        ("ValueError", r"delimiter must not be '\n' or '\r'", False),
        ("ValueError", r"expected b'OK\r' from the instrument, got b''", False),
        ("TimeoutError", r"expected 'OK\r' from the instrument, got ''", False),
        ("torch.OutOfMemoryError", r"CUDA out of memory while encoding 'a\r'", False),
    ],
)
def test_a_value_that_ends_in_a_carriage_return_points_at_its_file(
    name: str, message: str, is_told: bool, context: DiagnosisContext
) -> None:
    record(context, 0, NOW, name, message)
    failure = diagnosis.diagnose(ended(0, NOW), context).failure
    assert ("Windows line endings" in failure.hint) == is_told


def test_a_file_with_windows_line_endings_is_told_where_bash_finds_no_program(
    context: DiagnosisContext,
) -> None:
    exit = with_log(context, "run.sh: line 2: $'\\r': command not found\n", 127)
    failure = diagnosis.diagnose(exit, context).failure
    assert failure.code == "command_not_found" and "Windows line endings" in failure.hint


LOST_WORKER = "DataLoader worker (pid(s) 91, 92) exited unexpectedly"


@pytest.mark.parametrize(
    ("pid", "message", "code"),
    [
        (92, LOST_WORKER, "child_failed"),
        # A probe of another program, which the script handled.
        (81, LOST_WORKER, "data_worker_lost"),
        (91, "the server (pid(s) 91) exited unexpectedly", "exception"),
    ],
)
def test_the_error_of_a_lost_worker_is_told_and_no_other_childs(
    pid: int, message: str, code: str, context: DiagnosisContext
) -> None:
    error = "before the current process has finished its bootstrapping phase"
    record(context, 0, NOW - 2, "RuntimeError", error, pid=pid, parent=70)
    record(context, 0, NOW, "RuntimeError", message)
    failure = diagnosis.diagnose(ended(0, NOW), context).failure
    assert failure.code == code and ("bootstrapping" in failure.message) == (code == "child_failed")


def test_the_ranks_details_stay_where_another_ranks_model_is_named(
    context: DiagnosisContext,
) -> None:
    message = (
        "DDP expects same model across all ranks, but Rank 0 has 4 params, while rank 2 has "
        "inconsistent 6 params."
    )
    record(context, 1, NOW, "RuntimeError", message, rank="0", world_size="4")
    failure = diagnosis.root_cause([ended(1, NOW)], context, NOW + 1)
    assert failure is not None
    assert failure.message.startswith("rank 2 has a model of 6 parameters (tensors) where")
    assert failure.details["rank"] == 1 and failure.details["script_rank"] == 0


@pytest.mark.parametrize(
    ("line", "is_told"),
    [("return _ForkingPickler.loads(buf)", True), ("self.check(buf)", False)],
)
def test_an_error_that_can_not_be_rebuilt_is_told_from_a_process_that_died(
    line: str, is_told: bool, context: DiagnosisContext
) -> None:
    error = "TypeError: BadImage.__init__() missing 1 required positional argument: 'reason'"
    start = "Traceback (most recent call last):\n"
    file = "/usr/lib/python3.11/multiprocessing/connection.py"
    inner = f'{start}  File "{file}", line 251, in recv\n    {line}\n{error}\n'
    own = f'{start}  File "{context.work}/train.py", line 21, in main\n    pool.map(decode)\n'
    message = "A process in the process pool was terminated abruptly"
    title = "concurrent.futures.process.BrokenProcessPool"
    record(
        context, 0, NOW, title, message,
        traceback=f"concurrent.futures.process._RemoteTraceback: \n'''\n{inner}'''\n\nThe above "
        f"exception was the direct cause of the following one:\n\n{own}{title}: {message}\n",
    )  # fmt: skip
    failure = diagnosis.diagnose(ended(0, NOW), context).failure
    assert f"{error} (train.py line 21, in main)" in failure.message
    assert ("__reduce__" in failure.hint) == is_told


READ = (
    '  File "/lib/python3.11/multiprocessing/queues.py", line 122, in get\n'
    "    return _ForkingPickler.loads(res)\n"
)


@pytest.mark.parametrize(
    ("frames", "error", "code"),
    [
        (READ, "TypeError: __init__() missing 1 required positional argument: 'x'", "child_failed"),
        (READ, "ModuleNotFoundError: No module named 'zstd'", "import_failed"),
        (
            READ + '  File "/lib/python3.11/multiprocessing/reduction.py", line 164, in recvfds\n',
            "RuntimeError: received 0 items of ancdata",
            "too_many_files",
        ),
        (
            READ + '  File "/site-packages/torch/multiprocessing/reductions.py", line 9, in f\n',
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 MiB",
            "cuda_out_of_memory",
        ),
        (READ + '  File "/x/train.py", line 3, in build\n', "TypeError: bad shape", "exception"),
    ],
)
def test_what_fails_while_another_process_is_read_keeps_its_cause(
    frames: str, error: str, code: str, context: DiagnosisContext
) -> None:
    name = "torch.multiprocessing.spawn.ProcessRaisedException"
    message = (
        "\n\n-- Process 1 terminated with the following error:\n"
        f"Traceback (most recent call last):\n{frames}{error}\n"
    )
    own = f'  File "{context.work}/train.py", line 21, in main\n    mp.spawn(work)\n'
    traceback = f"Traceback (most recent call last):\n{own}{name}: {message}"
    record(context, 0, NOW, name, message, traceback=traceback)
    failure = diagnosis.diagnose(ended(0, NOW), context).failure
    assert failure.code == code
    assert ("__reduce__" in failure.hint) == (frames == READ and "TypeError" in error)


def test_only_a_server_that_is_no_rank_is_told_as_one(context: DiagnosisContext) -> None:
    refused = "<urlopen error [Errno 111] Connection refused>"
    record(context, 0, NOW, "urllib.error.URLError", refused, address="10.0.0.9:3128")
    record(context, 1, NOW + 1, "ValueError", "bad sample")
    exits = [ended(0, NOW + 0.1), ended(1, NOW + 1.1)]
    failure = diagnosis.root_cause(exits, context, NOW + 2)
    assert failure is not None and failure.details["rank"] == 1
    failure = diagnosis.root_cause(exits[:1], context, NOW + 2)
    assert failure is not None and failure.code == "connection_failed"
    assert failure.message.endswith("(train.py line 4, in step), while connecting to 10.0.0.9:3128")


def test_an_address_is_told_of_errors_of_connections_only(context: DiagnosisContext) -> None:
    record(context, 0, NOW, "KeyError", "'x'", address="10.0.0.9:3128")
    assert "10.0.0.9" not in diagnosis.diagnose(ended(0, NOW), context).failure.message


def test_a_thread_that_left_covers_no_error(context: DiagnosisContext) -> None:
    record(context, 0, NOW - 2, "KeyError", "'reward'", kind="thread")
    record(context, 0, NOW - 1, "SystemExit", "2", kind="thread")
    assert "KeyError" in diagnosis.diagnose(ended(0, NOW), context).failure.message
    (notice,) = hidden_failures.notices([ended(0, NOW, 0)], context, "python train.py")
    assert "a thread in it failed: KeyError" in notice


def test_of_threads_that_failed_the_one_with_another_error_is_told(
    context: DiagnosisContext,
) -> None:
    broken = "threading.BrokenBarrierError"
    record(context, 0, NOW - 2, "KeyError", "'reward'", kind="thread")
    for seconds in (1.5, 1.0):
        record(context, 0, NOW - seconds, broken, "", kind="thread")
    record(context, 0, NOW, broken, "")
    message = diagnosis.diagnose(ended(0, NOW), context).failure.message
    assert message.endswith(", after KeyError: 'reward' (train.py line 4, in step) in a thread")


LIMIT = """step 3
Timeout (0:00:02)!
Thread 0x00007f1 (most recent call first):
  File "/w/reader.py", line 5 in read

Thread 0x00007f2 (most recent call first):
  File "/w/train.py", line 20 in pack
  File "/w/train.py", line 31 in <module>
"""


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (LIMIT, "`faulthandler.dump_traceback_later` ended it after 0:00:02 (/w/train.py line 20,"),
        # It only told, and the script went on.
        (f"{LIMIT}step 4\n", "by os._exit or a library, after it printed `step 4`"),
        ("Timeout (0:00:02)! of the server\n", "by os._exit or a library, after it printed"),
        ("libx: no license\n", "or a library, after it printed `libx: no license`"),
        (
            "[ERROR] no license for rank 1\nbye\n",
            "after it logged `[ERROR] no license for rank 1` and printed `bye`",
        ),
        ("ERROR rate 0.1\nERROR: 0\nerror 0.3\nbye\n", "a library, after it printed `bye`"),
        ("log level: ERROR\nbye\n", "a library, after it printed `bye`"),
        ("NCCL_DEBUG=ERROR on\nloglevel='ERROR', x\nbye\n", "a library, after it printed `bye`"),
    ],
)
def test_what_an_abrupt_end_leaves_is_told(log: str, words: str, context: DiagnosisContext) -> None:
    folder = context.records_folder(0)
    folder.mkdir(parents=True)
    (folder / "70.stack").touch()
    failure = diagnosis.diagnose(with_log(context, log, 1), context).failure
    assert failure.code == "hard_exit" and words in failure.message


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (
            "step 3\ngzip: stdin: not in gzip format\ntar: Child returned status 1\n"
            "tar: Error is not recoverable: exiting now\n",
            "after it printed `gzip: stdin: not in gzip format` … `tar: Error is not recoverable",
        ),
        ("cp: cannot stat 'x'\n", "after it printed `cp: cannot stat 'x'`"),
        ("loss: 0.3\nacc: 0.5\n", "after it printed `acc: 0.5`"),
        ("tar: Removing leading `/' from names\ncp: no x\n", "after it printed `cp: no x`"),
        ("ld: warning: old\nwarning: old\ncp: no x\n", "after it printed `cp: no x`"),
        ("info: starts\ncp: no x\n", "after it printed `cp: no x`"),
    ],
)
def test_the_first_line_of_what_programs_say_is_told(
    log: str, words: str, context: DiagnosisContext
) -> None:
    failure = diagnosis.diagnose(with_log(context, log, 2), context).failure
    assert failure.code == "rank_failed" and words in failure.message


TRACEBACK = """Traceback (most recent call last):
  File "/w/train.py", line 11, in check
    raise ValueError("sample rate 44100")
ValueError: sample rate 44100"""


@pytest.mark.parametrize(
    "text",
    [
        TRACEBACK,
        "\n".join(f"09:30:0{n} | ERROR | {line}" for n, line in enumerate(TRACEBACK.split("\n"))),
        json.dumps({"level": "error", "exception": TRACEBACK}),
        TRACEBACK.replace('  File "/w/train.py"', '\n> File "/w/train.py"'),
    ],
    ids=["plain", "a time before each line", "within JSON", "Loguru"],
)
def test_a_traceback_is_found_as_loggers_write_it(text: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(f"step 3\n{text}\n09:31:00 | INFO | bye\n")
    trace = artifacts.last_trace(artifacts.log_tail(log))
    assert trace is not None and trace.title.startswith("ValueError: sample rate 44100")
    assert [(frame.file, frame.line) for frame in trace.frames] == [("/w/train.py", 11)]


@pytest.mark.parametrize(
    "text",
    [
        "{broken json Traceback (most recent call last):\\n",
        '["Traceback (most recent call last):\\n"]',
        "09:30 | ERROR | Traceback (most recent call last):\nand more",
        'see Traceback (most recent call last):\n  File "x.py", line 3',
    ],
)
def test_a_log_keeps_the_lines_that_are_no_traceback(text: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(text)
    assert artifacts.log_tail(log) == text
