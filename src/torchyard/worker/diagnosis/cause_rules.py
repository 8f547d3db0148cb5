"""The table of known causes of failed ranks: patterns, codes, and what to do.

Owns: the rules and their order, the codes that are not found by a pattern.
Leaves: matching to causes.py, the page in the docs to tools/failure_codes_page.py.
Always: a code is stable. A *consequence* is a failure that another rank's failure caused; it is
reported only if no other cause is found.
"""

from __future__ import annotations

from dataclasses import dataclass

from torchyard.shared.collectives import HINT
from torchyard.shared.failures import RENDEZVOUS_FAILED


@dataclass(frozen=True)
class Rule:
    """A known cause.

    `pattern` is searched in the error's type and message, or without an error in the last lines
    of output. The hint may contain groups of the pattern as `{name}`. A rule with an exit code
    matches only ranks that exited with it.
    """

    code: str
    pattern: str
    hint: str
    consequence: bool = False
    exit_code: int = 0


_PEERS = "check the other ranks: one of them failed or hung first"
_GPU = (
    "the GPU or its driver is faulty: see `dmesg | grep -i xid` and `nvidia-smi -q` on that machine"
)
_INSTALL = (
    "add `{package}` to the job's environment, in `pip_requirements` or under `pip` in the "
    "`conda_file`"
)

# Their patterns match nothing: what shows them is the traceback, not the message.
WRONG_PROGRAM_IN_COMMAND = Rule(
    "syntax_error",
    r"(?!)",
    "the text after `python -c` is not valid Python: YAML's `>` joins its lines by spaces, so "
    "write `|` there, or put the program into a file",
)
WRONG_PROGRAM_FROM_INPUT = Rule(
    "syntax_error",
    r"(?!)",
    "what Python reads from its standard input, such as a here-document, is not valid Python: "
    "see the line in the message, or put the program into a file",
)
WRONG_TEXT_COMPILED = Rule(
    "syntax_error",
    r"(?!)",
    "a text that the script compiles, as by `eval` or `exec`, is not valid Python: see what it "
    "gets there",
)
CANNOT_BE_REBUILT = Rule(
    "child_failed",
    r"(?!)",
    "a process sent what can't be unpickled here: an exception is rebuilt from its `args`, so give "
    "`super().__init__` what its own `__init__` takes, or define `__reduce__`",
)
MEETING_FAILED = Rule(
    RENDEZVOUS_FAILED,
    r"(?!)",
    "the rank could not connect to the address at which the ranks meet: is MASTER_ADDR with "
    "MASTER_PORT, or what `init_process_group` gets, the same for all ranks and of this run",
    consequence=True,
)

# Also what the script itself finds wrong with them, in its own words.
ARGUMENTS_REFUSED = Rule(
    "usage_error",
    r"error: (?:unrecognized arguments|the following arguments are required"
    r"|argument [^\s:]{1,200}: |invalid choice)|^argparse\.ArgumentError: "
    r"|^click\.exceptions\.(?:UsageError|NoSuchOption|(?:Missing|Bad)\w{1,20}): "
    r"|^Error: (?:No such (?:option|command)|Missing (?:option|argument|parameter|command)"
    r"|Invalid value for ['\"]|Option '[^'\n]{1,100}' (?:requires|does not take)"
    r"|Got unexpected extra )",
    "check the job's `command`: the script rejected its arguments; a value with quotes of its own, "
    "such as JSON, needs single quotes around it",
)

RULES: tuple[Rule, ...] = (
    # The shell's own
    Rule(
        "interpreter_missing",
        r": bad interpreter|: cannot execute: required file not found"
        r"|env: \S[^\n]{1,200}\\r\S: No such file",
        "the first line of the file (`#!…`) names a program that this node does not have; a file "
        "with Windows line endings names one with a carriage return: run it with its interpreter "
        "(`bash FILE`, `python FILE`), or correct that line",
    ),
    Rule(
        "command_not_found",
        r"(?:line \d+: |: )(?P<command>[^\s:]+): (?:command )?not found",
        "`{command}` does not exist on the node: use its full path, or add the package that "
        "provides it to the environment",
        exit_code=127,
    ),
    Rule(
        "not_executable",
        r"(?<!\S)(?P<path>\S+): (?:Permission denied|cannot execute|Is a directory)",
        "run it with its interpreter (`bash {path}`, `python {path}`), or run `chmod +x` before "
        "you submit the job",
        exit_code=126,
    ),
    Rule(
        "shell_syntax",
        r"(?<![\w-])(?:da)?sh: \d+: (?:Syntax error: (?:\"\(\"|redirection) unexpected"
        r"|Bad substitution)",
        "`sh` is not bash and knows neither its arrays nor all of its `${{…}}`: run the file by "
        "`bash`, or write `#!/bin/bash` into its first line and run it by its path",
    ),
    Rule(
        "shell_syntax",
        r"(?:line \d+: |sh: \d+: )(?:.{0,200}(?:[Ss]yntax error|unexpected EOF|bad substitution)"
        r"|\w+: (?:unbound variable|parameter not set))",
        "the shell can't parse the job's `command`: see the line in the message",
    ),
    Rule(
        "import_failed",
        r"Unable to retrieve \.NET dependencies",
        "this azureml-dataprep reads data by .NET Core, for which the machine lacks a library: "
        "name Python 3.8 or later in the environment, whose azureml-dataprep needs no .NET",
    ),
    # The GPU and its libraries
    Rule(
        "cuda_out_of_memory",
        r"CUDA out of memory|torch\.(cuda\.)?OutOfMemoryError|CUDA error: out of memory"
        r"|CUBLAS_STATUS_ALLOC_FAILED|cudaErrorMemoryAllocation",
        "use a smaller batch, accumulate gradients, or shard the model; check with `nvidia-smi` "
        "whether another program uses memory of that GPU",
    ),
    Rule(
        "gpu_ecc_error",
        r"uncorrectable ECC error|ECC error encountered|cudaErrorECCUncorrectable",
        f"the memory of that GPU is defective: reset the GPU or take it out of service; {_GPU}",
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
        "usually an index or a class label is out of range: run once with CUDA_LAUNCH_BLOCKING=1 "
        "to see where",
    ),
    Rule(
        "cuda_missing",
        r"Torch not compiled with CUDA enabled|No CUDA GPUs are available"
        r"|Found no NVIDIA driver|no NVIDIA GPU|CUDA driver version is insufficient"
        r"|Attempting to deserialize object on a CUDA device",
        "this node has no GPU that torch can use: run on a node with a GPU, or let the script "
        "use the CPU",
    ),
    Rule(
        "peer_lost",
        r"ncclRemoteError|remote process exited|NCCL communicator was aborted",
        _PEERS,
        consequence=True,
    ),
    Rule(
        "nccl_error",
        r"unhandled (?:cuda|system) error.{0,200}NCCL|NCCL error in|ncclUnhandledCudaError"
        r"|ncclSystemError|ncclInternalError|ncclInvalidUsage|Duplicate GPU detected",
        "set NCCL_DEBUG=INFO under `environment_variables` and see what NCCL logs before the error",
    ),
    Rule(
        "cuda_device_missing",
        r"invalid device ordinal|cudaErrorInvalidDevice\b",
        "the script names a GPU that this rank does not have: a node's own are numbered from 0, "
        "and one for each process is given unless the property `torchyard.gpus` says how many",
    ),
    Rule(
        "cuda_error",
        r"CUDA error:|cuDNN error|CUDNN_STATUS_|CUBLAS_STATUS_|CUDA driver error",
        "run once with CUDA_LAUNCH_BLOCKING=1 to see which call fails",
    ),
    # Between ranks
    Rule(
        "network_unavailable",
        r"Unable to find (?:address for|interface)[: ]{1,3}(?P<interface>[\w.:-]{1,60})",
        "the machine has no network interface `{interface}`, or that has no address: leave out "
        "GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME, or name one that `ip -brief address` lists",
    ),
    Rule(
        "port_in_use",
        r"EADDRINUSE|[Aa]ddress already in use",
        "another program, or another rank of this job, uses the port: let one rank of a node bind "
        "it, use the job's own (MASTER_PORT), or bind port 0 to get a free one",
    ),
    Rule(
        "rendezvous_timeout",
        r"waiting for clients\. \d+/\d+ clients joined|RendezvousTimeoutError"
        r"|wait timeout after \d+ms, keys: /default_pg"
        r"|did not join the rendezvous|Timed out .{0,200}rendezvous",
        "a rank did not join `init_process_group`: check what it was doing; all ranks of the job "
        "must call it, with the job's own WORLD_SIZE",
        consequence=True,
    ),
    Rule(
        "collective_mismatch",
        r"op\.preamble\.length <= op\.nbytes|Detected mismatch between collectives",
        HINT,
    ),
    Rule(
        "collective_timeout",
        r"Ranks? [\d, ]{1,200} failed to pass monitoredBarrier",
        "the ranks that the message names did not come to the barrier in its time",
        consequence=True,
    ),
    Rule(
        "peer_lost",
        r"Rank \d{1,9} successfully reached monitoredBarrier",
        _PEERS,
        consequence=True,
    ),
    Rule(
        "collective_timeout",
        r"Watchdog caught collective operation timeout|Timed out waiting \d+ms for"
        r"|wait timeout after \d+ms|monitoredBarrier.{0,200}timed out|Socket Timeout"
        r"|store->get\(.{0,200}timeout",
        "a rank did not take part in a collective call that the others wait for: set the property "
        "`torchyard.hang_after_s` to see where each rank is",
        consequence=True,
    ),
    Rule(
        "rendezvous_unreachable",
        r"RendezvousConnectionError",
        "`torchrun` reaches nobody where its nodes are to meet, which must be a node of this job: "
        "write `--rdzv_endpoint $MASTER_ADDR:$MASTER_PORT`",
    ),
    Rule(
        "rendezvous_failed",
        r"connectFullMesh failed with .{0,200}(?:timed out connecting|Connection refused)",
        "a rank is not where the others look for it: does every run meet at a file or an address "
        "of its own, and can the nodes reach each other",
        consequence=True,
    ),
    Rule(
        "connection_failed",
        r"SSL: (?:WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE)",
        "the server at that port does not speak TLS: its address begins with `http://`, or a proxy "
        "of `https_proxy` does",
    ),
    Rule(
        "connection_failed",
        r"SSL: CERTIFICATE_VERIFY_FAILED",
        "this machine does not trust the certificate of that server: name the file of its "
        "authority in SSL_CERT_FILE and REQUESTS_CA_BUNDLE, or set the machine's clock",
    ),
    Rule(
        "connection_failed",
        r"HTTP(?:Status)?Error: \D{0,40}(?P<status>[45]\d\d)\b",
        "a server refused the request with status {status}: 401 and 403 mean a token or a link "
        "that is wrong or has expired, 404 a wrong address; after 429, or one from 500 up, try "
        "again later",
    ),
    # Clients of HTTP, whose servers are seldom ranks.
    Rule(
        "connection_failed",
        r"^(?:urllib\.error\.|urllib3\.|requests\.|httpx\.|aiohttp\.|botocore\.|http\.client\.)"
        r"[\w.]{1,80}: [^\n]{0,400}?(?:[Cc]onnection (?:refused|reset|aborted|broken)"
        r"|closed connection)",
        "nobody answers at that address: check the server, its port, and `http_proxy` and "
        "`https_proxy` among the variables; or provide the data as one of the job's `inputs`",
        consequence=True,
    ),
    Rule(
        "peer_lost",
        r"[Cc]onnection (?:closed|reset|refused) by peer|Connection reset by (?:remote )?peer"
        r"|ConnectionResetError|ConnectionRefusedError|ConnectionAbortedError|BrokenPipeError"
        r"|Broken pipe|Transport endpoint is not connected|ProcessGroupWrapper"
        r"|Connection was likely closed"
        r"|client socket has (?:failed to connect|timed out)|DistNetworkError|DistStoreError"
        r"|failed to recv, got 0 bytes|recvValue failed|sendBytes failed|Gloo connectFullMesh"
        r"|DistBackendError|Connection refused"
        r"|Application timeout caused pair closure|\[[^\[\]\n]{0,200}/gloo/|EOFError(?!: Ran out)",
        _PEERS,
        consequence=True,
    ),
    Rule(
        "child_failed",
        r"before the\s{1,40}current process has finished its bootstrapping phase",
        "a process that the script spawns runs the script's file again: put what starts processes, "
        'and what shall run once, below `if __name__ == "__main__":`',
    ),
    Rule(
        "child_failed",
        r"ChildFailedError|ProcessExitedException|CalledProcessError|BrokenProcessPool"
        r"|terminated abruptly|non-zero exit status",
        "see the output above: the child process shows why it failed",
        consequence=True,
    ),
    Rule(
        "connection_failed",
        r"urllib.{0,200}URLError|ConnectionError|HTTPError|Name or service not known"
        r"|Temporary failure in name resolution|Network is unreachable|Connection (?:refused|reset)"
        r"|Max retries exceeded|TimeoutError",
        "a remote server did not respond: check whether this machine can reach it, or provide the "
        "data as one of the job's `inputs`",
    ),
    # Memory and disk
    Rule(
        "shared_memory_full",
        r"unable to (?:write|allocate|mmap|open).{0,200}(?:shared memory|</torch_)"
        r"|DataLoader worker.{0,200}Bus error"
        r"|insufficient shared memory|/dev/shm.{0,200}No space left",
        "`/dev/shm` is full: use fewer `num_workers`, smaller batches, or "
        "`torch.multiprocessing.set_sharing_strategy('file_system')`",
    ),
    Rule(
        "disk_full",
        r"No space left on device|\[Errno 28\]|Disk quota exceeded|\[Errno 122\]"
        r"|iostream error|file write failed",
        "free disk space on that machine: `df -h` shows which disk is full",
    ),
    Rule(
        "out_of_memory",
        r"MemoryError|[Cc]annot allocate memory|can't allocate memory|std::bad_alloc"
        r"|DataLoader worker.{0,200}killed by signal: Killed|Unable to allocate [\d.]+ [KMGT]iB",
        "load less data at once, use fewer data-loader workers or fewer ranks per node; a limit "
        "such as `ulimit -v` may allow less than the machine has",
    ),
    Rule(
        "data_worker_lost",
        r"DataLoader worker.{0,200}(?:exited unexpectedly|killed by signal)",
        "a data-loader worker died without an error, usually because memory ran out: use fewer "
        "`num_workers`, or 0 to see its own error",
    ),
    Rule(
        "too_many_files",
        r"Too many open files|\[Errno 24\]|received 0 items of ancdata",
        "raise the limit in the command (`ulimit -n 65536`), or use fewer data-loader workers",
    ),
    Rule(
        "too_many_processes",
        r"fork: (?:retry: )?Resource temporarily unavailable|: Cannot fork|can't start new thread"
        r"|(?:pthread_create|Thread creation) failed.{0,80}Resource temporarily unavailable",
        "the job reached its limit of processes and threads: start fewer of them (`num_workers`, "
        "OMP_NUM_THREADS), or see `ulimit -u` and the limits of its compute size; a program that "
        "starts copies of itself without end reaches any limit",
    ),
    Rule(
        "io_error",
        r"\[Errno 5\]|Input/output error|\[Errno 116\]|Stale file handle",
        "the disk or the network share is failing: see `dmesg` on that machine",
    ),
    Rule(
        "read_only",
        r"\[Errno 30\]|Read-only file system",
        "inputs are read-only: write to ./outputs, ${{{{outputs.<name>}}}} or a temporary folder",
    ),
    # DeepSpeed takes every job of Azure ML without RANK for one that MPI started.
    Rule(
        "not_distributed",
        r"KeyError: '(?:OMPI_COMM_WORLD_\w{1,20}|(?:LOCAL_)?RANK|WORLD_SIZE|MASTER_(?:ADDR|PORT))'"
        r"|environment variable (?:RANK|WORLD_SIZE|MASTER_\w{4}) expected, but not set",
        "a job has the variables of ranks only where its file says so: write `distribution: "
        "{{type: pytorch, process_count_per_instance: 1}}`, or start the script by a launcher such "
        "as `torchrun`",
    ),
    # Python's own
    Rule(
        "mlflow_too_old",
        r"registered artifact repository for: mlflow-artifacts:",
        "this version of MLflow logs files and models only to disks: use `mlflow>=1.23`, or write "
        "them to `./outputs`",
    ),
    Rule(
        "import_failed",
        r"dtype size changed, .{0,80}Expected 96 from C header, got 88"
        r"|numpy\.core\.multiarray failed to import|compiled using NumPy 1\.x"
        r"|was removed in the NumPy 2\.0 release",
        "a package from before NumPy 2 runs with NumPy 2: add `numpy<2` to the job's environment "
        "or to the `pip install` of the command, or use a newer version of that package",
    ),
    Rule(
        "import_failed",
        r"RuntimeError: Numpy is not available",
        "torch finds no NumPy that it can use: add `numpy` to the job's environment, `numpy<2` for "
        "torch before 2.3",
    ),
    Rule(
        "mlflow_run_elsewhere",
        r"Run with id=\S{1,100} not found|Run '\S{1,100}' not found",
        "MLFLOW_RUN_ID names the job's run, which a tracking store of the script's own does not "
        "have: leave out `set_tracking_uri`, or `unset MLFLOW_RUN_ID` before the script",
    ),
    Rule(
        "import_failed",
        r"partially initialized module '(?P<module>[\w.]{1,200})'",
        "two files import each other: `{module}` is used before its own first lines have run; "
        "import it in the function that needs it, or move what both need into a third file",
    ),
    Rule(
        "import_failed",
        r"/python[\d.]{0,8}: No module named '?(?P<missing>[\w.]{1,200})",
        "`python -m {missing}` finds no such module: it is not in the job's `code`, or the "
        "environment lacks the package that has it",
    ),
    Rule(
        "import_failed",
        r"Error while finding module specification for '(?P<module>[\w./-]{1,200})\.py'",
        "`python -m` takes the name of a module, as `{module}`, without `.py` and with dots "
        "between folders; a file is run by its path, without `-m`",
    ),
    Rule("import_failed", r"No module named '?(?P<module>[\w.]+)", _INSTALL),
    Rule(
        "import_failed",
        r"(?<![\w.+-])(?P<library>lib[\w.+-]+): cannot open shared object file",
        "`{library}` is a system library: install it on the machine, or use a package that "
        "includes it",
    ),
    Rule(
        "import_failed",
        r"^(?:ImportError|AttributeError: module)|cannot import name",
        "the installed version may not be the one that the script was written for: pin it in the "
        "environment; or one of your files may shadow a package of the same name",
    ),
    # What shows these is the traceback; diagnosis.py tells them apart.
    CANNOT_BE_REBUILT,
    MEETING_FAILED,
    WRONG_PROGRAM_IN_COMMAND,
    WRONG_PROGRAM_FROM_INPUT,
    WRONG_TEXT_COMPILED,
    Rule(
        "syntax_error",
        r"^(?:SyntaxError|IndentationError|TabError)",
        "the file is not valid for this version of Python: see the line in the message",
    ),
    Rule(
        "script_missing",
        r"can't open file '(?P<path>[^']+)'",
        "the command uses a file that is not in `code`: paths are relative to that folder; without "
        "`code` a job has no files, and `code: .` sends those beside the job file",
    ),
    Rule(
        "file_missing",
        r"\bcd: (?P<path>[^\s:]{1,200}): (?:No such file|Not a directory)",
        "the command starts in the job's code folder, and paths are relative to that: with "
        "`code: {path}` there is no `{path}` in it; without `code` a job has no files",
    ),
    Rule(
        "file_missing",
        r"FileNotFoundError|No such file or directory|NotADirectoryError",
        "this machine may not have the path: pass data to a job as `inputs`, and code as `code`",
    ),
    Rule(
        "permission_denied",
        r"PermissionError|[Pp]ermission denied",
        "the job runs as the server's user: check who may read or write that path",
    ),
    Rule("interrupted", r"^KeyboardInterrupt", "something sent SIGINT to the rank"),
    Rule("assertion_failed", r"^AssertionError", ""),
    Rule("recursion_too_deep", r"^RecursionError", ""),
    Rule(
        "checkpoint_mismatch",
        r"Error\(s\) in loading state_dict",
        "the checkpoint belongs to another model: see the missing and unexpected keys",
    ),
    ARGUMENTS_REFUSED,
)

# Codes that are not found by a pattern; the page in the docs lists them too.
OTHER_CODES: tuple[tuple[str, str], ...] = (
    ("exception", "a Python exception that matches no rule"),
    ("rank_failed", "a rank exited with a code other than 0 and left no further information"),
    ("exited", "the script called `sys.exit` or `exit`, or raised SystemExit"),
    ("output_unwritten", "Python exited with 120: stdout or stderr was closed when it ended"),
    ("hard_exit", "`os._exit(n)`, or a library that ended the process without Python's shutdown"),
    ("segmentation_fault", "SIGSEGV; the error's traceback has the Python stack of that moment"),
    ("aborted", "SIGABRT: a library aborted the process; the last lines of the log show why"),
    (
        "bus_error",
        "SIGBUS: usually a full `/dev/shm`, or a file that was truncated while it was mapped",
    ),
    ("arithmetic_fault", "SIGFPE"),
    ("illegal_instruction", "SIGILL: a package was built for another processor"),
    ("process_limit", "the ranks of a node had more processes and threads than they may have"),
    ("disk_limit", "the ranks of a node wrote more than `torchyard.disk_quota_mb`"),
    ("network_unavailable", "the node can't give the job the network that it asks for"),
    ("killed", "SIGKILL by a user or another program, not because memory ran out"),
    ("terminated", "SIGTERM that torchyard did not send"),
    ("signaled", "any other signal"),
    ("broken_pipe", "SIGPIPE: the reader of a shell pipe exited early"),
    ("hang", "no output or metric from any rank for `torchyard.hang_after_s`"),
    ("timeout", "the job ran longer than `limits.timeout`"),
    ("preempted", "the nodes were needed for dedicated work; the job is queued again"),
    ("resized", "an elastic job goes on with another number of nodes, in the next attempt"),
    ("nodes_missing", "a node did not join the job in time"),
    ("rendezvous_failed", "a node can't reach node 0"),
    ("mpi_missing", "a node has no Open MPI, which `type: mpi` needs"),
    ("mpi_unsupported", "the MPI of a node is not Open MPI 4"),
    ("mpi_failed", "mpirun or one of its daemons ended before the ranks, or did not start them"),
    (
        "worker_lost",
        "the worker of a node, or its supervisor, was killed, or told to end by something else "
        "than torchyard",
    ),
    ("node_lost", "the engine lost the machine of a node; the message names it"),
    ("node_unusable", "a machine of an engine can't run the worker, and why"),
    ("owner_may_not_run", "the job's owner was removed, or lost the role to run jobs there"),
    ("launch_failed", "the nodes could not be started: an engine refused them, or the runner"),
    ("engine_unreachable", "the job was canceled while its engine did not answer"),
    ("not_responding", "the worker of a node is running, but has not reported for too long"),
    (
        "time_limit",
        "Slurm ended the job at its time limit; with a checkpoint, it goes on by itself",
    ),
    ("canceled_in_slurm", "somebody canceled the job in Slurm, not here"),
    ("stopped", "the node was stopped because another one failed"),
    ("stopped_early", "a trial's sweep ended it by its policy"),
    ("sweep_ended", "a trial was ended with its sweep"),
    ("sweep_timeout", "the trials of a sweep ran longer than its `limits.timeout`"),
    ("too_many_failed_trials", "a sweep does not go on after so many failures; the message says"),
    ("gate_failed", "a gate stopped the release of an environment; the message names it"),
    ("validation_failed", "workloads failed in an environment; the message names them"),
    ("release_ended", "a validation job was ended with the release or validation that made it"),
)
