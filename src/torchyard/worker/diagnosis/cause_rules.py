"""The one table of what brings ranks down: patterns, their codes, and what to do.

Owns: the rules and their order, the codes that are decided by other means than a pattern.
Leaves: which rule fits to causes.py, the page of them in the docs to tools/failure_codes_page.py.
Always: a code is stable. A *consequence* is what ranks suffer when another one is gone: it is named
only when nothing else is found.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """`pattern` is looked for in the error's own text: its type and message, or the last lines
    printed when there is no error. Groups of the pattern may stand in the hint as `{name}`.
    A rule with an exit code fits only a rank that ended with it.
    """

    code: str
    pattern: str
    hint: str
    consequence: bool = False
    exit_code: int = 0


_PEERS = "look at the other ranks: one of them ended or hung first"
_GPU = (
    "the GPU or its driver is at fault: `dmesg | grep -i xid` and `nvidia-smi -q` on that machine"
)
_INSTALL = (
    "add `{package}` to the environment of the job: under `pip_requirements`, or `pip` in the "
    "`conda_file`"
)

RULES: tuple[Rule, ...] = (
    # The shell's own
    Rule(
        "command_not_found",
        r"(?:line \d+: |: )(?P<command>[^\s:]+): (?:command )?not found",
        "`{command}` is not on the node: give its whole path, or add the package that brings it "
        "to the environment",
        exit_code=127,
    ),
    Rule(
        "not_executable",
        r"(?P<path>\S+): (?:Permission denied|cannot execute|Is a directory)",
        "run it by its interpreter (`bash {path}`, `python {path}`), or `chmod +x` it before the "
        "job is submitted",
        exit_code=126,
    ),
    Rule(
        "shell_syntax",
        r"(?:line \d+: |sh: \d+: )(?:.*syntax error|.*Syntax error|.*unexpected EOF"
        r"|\w+: (?:unbound variable|parameter not set))",
        "the shell does not understand the `command` of the job: see the line that it names",
    ),
    # The GPU and its libraries
    Rule(
        "cuda_out_of_memory",
        r"CUDA out of memory|torch\.(cuda\.)?OutOfMemoryError|CUDA error: out of memory"
        r"|CUBLAS_STATUS_ALLOC_FAILED|cudaErrorMemoryAllocation",
        "make the batch smaller, accumulate gradients, or shard the model; see whether another "
        "program holds memory of that GPU: `nvidia-smi`",
    ),
    Rule(
        "gpu_ecc_error",
        r"uncorrectable ECC error|ECC error encountered|cudaErrorECCUncorrectable",
        f"the memory of that GPU is broken: take the GPU out of use, or reset it; {_GPU}",
    ),
    Rule(
        "gpu_lost",
        r"GPU is lost|fallen off the bus|NVRM: Xid|CUDA error: (?:unspecified launch failure"
        r"|the launch timed out|system not yet initialized|device(?:\(s\))? is/are busy)"
        r"|unable to determine the device handle",
        _GPU,
    ),
    Rule(
        "cuda_assert",
        r"device-side assert triggered",
        "mostly an index or a class label out of range: run once with CUDA_LAUNCH_BLOCKING=1 to "
        "see where",
    ),
    Rule(
        "cuda_missing",
        r"Torch not compiled with CUDA enabled|No CUDA GPUs are available"
        r"|Found no NVIDIA driver|no NVIDIA GPU|CUDA driver version is insufficient"
        r"|Attempting to deserialize object on a CUDA device",
        "this node has no GPU that torch can use: run on one that has, or let the script choose "
        "the CPU",
    ),
    Rule(
        "peer_lost",
        r"ncclRemoteError|remote process exited|NCCL communicator was aborted",
        _PEERS,
        consequence=True,
    ),
    Rule(
        "nccl_error",
        r"unhandled (?:cuda|system) error.*NCCL|NCCL error in|ncclUnhandledCudaError"
        r"|ncclSystemError|ncclInternalError|ncclInvalidUsage|Duplicate GPU detected",
        "set NCCL_DEBUG=INFO under `environment_variables` and see what NCCL says before the error",
    ),
    Rule(
        "cuda_error",
        r"CUDA error:|cuDNN error|CUDNN_STATUS_|CUBLAS_STATUS_|CUDA driver error",
        "run once with CUDA_LAUNCH_BLOCKING=1 to see the call that fails",
    ),
    # Between ranks
    Rule(
        "port_in_use",
        r"EADDRINUSE|[Aa]ddress already in use",
        "another program has the port: take the one of the job (MASTER_PORT), or let the system "
        "choose by binding port 0",
    ),
    Rule(
        "rendezvous_timeout",
        r"waiting for clients\. \d+/\d+ clients joined|RendezvousTimeoutError"
        r"|did not join the rendezvous|Timed out .*rendezvous",
        "a rank did not come to `init_process_group`: see what it was doing; all ranks of the "
        "job must call it, with the job's own WORLD_SIZE",
        consequence=True,
    ),
    Rule(
        "collective_timeout",
        r"Watchdog caught collective operation timeout|Timed out waiting \d+ms for"
        r"|wait timeout after \d+ms|monitoredBarrier.*timed out|Socket Timeout"
        r"|store->get\(.*timeout",
        "one rank did not take part in a collective call that the others wait in: see where each "
        "one was with the property `torchyard.hang_after_s`",
        consequence=True,
    ),
    Rule(
        "peer_lost",
        r"[Cc]onnection (?:closed|reset|refused) by peer|Connection reset by (?:remote )?peer"
        r"|ConnectionResetError|ConnectionRefusedError|ConnectionAbortedError|BrokenPipeError"
        r"|Broken pipe|ProcessGroupWrapper|remote process exited|Connection was likely closed"
        r"|client socket has (?:failed to connect|timed out)|DistNetworkError|DistStoreError"
        r"|failed to recv, got 0 bytes|recvValue failed|sendBytes failed|Gloo connectFullMesh"
        r"|NCCL communicator was aborted|ncclRemoteError|DistBackendError|Connection refused"
        r"|Application timeout caused pair closure|\[.*/gloo/.*\]|EOFError(?!: Ran out)",
        _PEERS,
        consequence=True,
    ),
    Rule(
        "child_failed",
        r"ChildFailedError|ProcessExitedException|CalledProcessError|BrokenProcessPool"
        r"|terminated abruptly|non-zero exit status",
        "see the output above it: the process that it started says why",
        consequence=True,
    ),
    Rule(
        "connection_failed",
        r"urllib.*URLError|ConnectionError|HTTPError|Name or service not known"
        r"|Temporary failure in name resolution|Network is unreachable|Connection (?:refused|reset)"
        r"|Max retries exceeded|TimeoutError",
        "a server elsewhere did not answer: see whether this machine reaches it, or bring what it "
        "gives as one of the job's `inputs`",
    ),
    # Memory and disk
    Rule(
        "shared_memory_full",
        r"unable to (?:write|allocate|mmap|open).*(?:shared memory|</torch_)"
        r"|DataLoader worker.*Bus error"
        r"|insufficient shared memory|/dev/shm.*No space left",
        "`/dev/shm` is full: use fewer `num_workers`, smaller batches, or "
        "`torch.multiprocessing.set_sharing_strategy('file_system')`",
    ),
    Rule(
        "disk_full",
        r"No space left on device|\[Errno 28\]|Disk quota exceeded|\[Errno 122\]"
        r"|iostream error|file write failed",
        "free space on that machine: `df -h` tells where it is short",
    ),
    Rule(
        "out_of_memory",
        r"MemoryError|[Cc]annot allocate memory|can't allocate memory|std::bad_alloc"
        r"|DataLoader worker.*killed by signal: Killed|Unable to allocate [\d.]+ [KMGT]iB",
        "the machine's memory did not suffice: load less at once, use fewer data-loader workers "
        "or fewer ranks on a node",
    ),
    Rule(
        "data_worker_lost",
        r"DataLoader worker.*(?:exited unexpectedly|killed by signal)",
        "a data-loader worker died without a word, mostly for memory: use fewer `num_workers`, or "
        "0 to see its own error",
    ),
    Rule(
        "too_many_files",
        r"Too many open files|\[Errno 24\]|received 0 items of ancdata",
        "raise the limit in the command (`ulimit -n 65536`), or use fewer data-loader workers",
    ),
    Rule(
        "io_error",
        r"\[Errno 5\]|Input/output error|\[Errno 116\]|Stale file handle",
        "the disk or the network share fails: see `dmesg` on that machine",
    ),
    Rule(
        "read_only",
        r"\[Errno 30\]|Read-only file system",
        "inputs are only read: write below ./outputs, ${{{{outputs.<name>}}}} or a temporary "
        "folder",
    ),
    # Python's own
    Rule("import_failed", r"No module named '?(?P<module>[\w.]+)", _INSTALL),
    Rule(
        "import_failed",
        r"(?P<library>lib[\w.+-]+\.so[\w.]*): cannot open shared object file",
        "`{library}` is a library of the system: install it on the machine, or take a package "
        "that brings it",
    ),
    Rule(
        "import_failed",
        r"^(?:ImportError|AttributeError: module)|cannot import name",
        "the version that is installed may not be the one the script was written for: pin it in "
        "the environment; a file of your own may also hide a package of the same name",
    ),
    Rule(
        "syntax_error",
        r"^(?:SyntaxError|IndentationError|TabError)",
        "the file is no Python for this version: see the line that is shown",
    ),
    Rule(
        "script_missing",
        r"can't open file '(?P<path>[^']+)'",
        "the command names a file that is not in `code`: paths are relative to that folder",
    ),
    Rule(
        "file_missing",
        r"FileNotFoundError|No such file or directory|NotADirectoryError",
        "data reaches a job as one of its `inputs`, and code as `code`: this machine may not have "
        "the path",
    ),
    Rule(
        "permission_denied",
        r"PermissionError|[Pp]ermission denied",
        "the job runs as the user of the server: see who may read or write that path",
    ),
    Rule("interrupted", r"^KeyboardInterrupt", "something sent SIGINT to the rank"),
    Rule("assertion_failed", r"^AssertionError", ""),
    Rule("recursion_too_deep", r"^RecursionError", ""),
    Rule(
        "checkpoint_mismatch",
        r"Error\(s\) in loading state_dict",
        "the checkpoint is of another model: see its missing and unexpected keys",
    ),
    Rule(
        "usage_error",
        r"error: (?:unrecognized arguments|the following arguments are required"
        r"|argument |invalid choice)",
        "see the `command` of the job: the script refused it",
    ),
)

# The page in the docs tells of these too; they are decided by other means than a pattern.
OTHER_CODES: tuple[tuple[str, str], ...] = (
    ("exception", "a Python exception that no rule knows"),
    ("rank_failed", "a rank exited with a code other than 0, and left nothing that says more"),
    ("exited", "the script ended itself by `sys.exit`"),
    ("hard_exit", "`os._exit(n)`, or a library that ended the process: Python's own end was cut"),
    ("segmentation_fault", "SIGSEGV; the Python stack at that moment is in the error's traceback"),
    ("aborted", "SIGABRT: a library gave up; the last lines of the log say why"),
    ("bus_error", "SIGBUS: mostly a full `/dev/shm`, or a file that was cut while it was mapped"),
    ("arithmetic_fault", "SIGFPE"),
    ("illegal_instruction", "SIGILL: a package was built for another processor"),
    ("killed", "SIGKILL by somebody, and not for memory"),
    ("terminated", "SIGTERM that torchyard did not send"),
    ("signaled", "any other signal"),
    ("broken_pipe", "SIGPIPE: the reader at the end of a shell pipe left early"),
    ("hang", "the hang watch: no output and no metric for `torchyard.hang_after_s`"),
    ("timeout", "`limits.timeout` is over"),
    ("preempted", "the nodes were needed for dedicated work; the job is queued again"),
    ("mpi_missing", "a node has no Open MPI, which `type: mpi` needs"),
    ("mpi_not_served", "the MPI of a node is another one than Open MPI 4"),
    ("mpi_failed", "mpirun or one of its daemons ended before the ranks, or did not start them"),
    ("worker_lost", "the worker of a node is gone without a word"),
    ("not_responding", "the worker of a node runs, and was not heard of for too long"),
    ("stopped", "the node did as it was told when another one failed"),
)
