"""Match errors and output against known causes, and describe signals.

Owns: finding the matching rule, filling in its hint, the names of packages and signals.
Leaves: the rules to cause_rules.py, reading a rank's files to artifacts.py, which rank is the root
cause to diagnosis.py.
Always: the first matching rule is used.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchyard.shared.module_packages import PACKAGES
from torchyard.worker.diagnosis.cause_rules import (
    RULES,
    WRONG_PROGRAM_FROM_INPUT,
    WRONG_PROGRAM_IN_COMMAND,
    WRONG_TEXT_COMPILED,
    Rule,
)

SHARED_MEMORY_FULL = "`/dev/shm` is full: use fewer data-loader workers or smaller batches"
_BUS = "a file that it had mapped into memory was cut short, or its disk failed"
_NATIVE = "compiled code failed: see the Python frames that called it"
SIGNALS: Mapping[int, tuple[str, str, str]] = {
    signal.SIGSEGV: ("segmentation_fault", "a segmentation fault", _NATIVE),
    signal.SIGABRT: ("aborted", "a library aborted the process", "the log usually shows why"),
    signal.SIGBUS: ("bus_error", "a bus error", _BUS),
    signal.SIGFPE: ("arithmetic_fault", "a division by zero in compiled code", _NATIVE),
    signal.SIGILL: (
        "illegal_instruction",
        "an instruction that this processor does not have",
        "a package was built for another processor: install a build for this one",
    ),
    signal.SIGKILL: ("killed", "by a user or another program, not by torchyard", ""),
    signal.SIGTERM: ("terminated", "sent by another program, not by torchyard", ""),
    signal.SIGINT: ("interrupted", "sent by another program, not by torchyard", ""),
    signal.SIGPIPE: ("broken_pipe", "the reader of its pipe had exited", ""),
    signal.SIGXCPU: (
        "signaled",
        "it exceeded its CPU time limit",
        "see `ulimit -t` in the command",
    ),
    signal.SIGXFSZ: (
        "signaled",
        "it exceeded its file size limit",
        "see `ulimit -f` in the command",
    ),
}


# Of a longer text its beginning and its end, of so many characters each: it is the job's own.
_SEARCHED = 8_000
_LONGEST_NAME = 200
# A connection lost in these files is one to a data-loader worker.
DATA_LOADER_FILES = ("torch/utils/data/dataloader.py", "/multiprocessing/connection.py")
CONNECTION_ERRORS = ("ConnectionResetError", "ConnectionRefusedError", "ConnectionAbortedError",
                     "BrokenPipeError")  # fmt: skip
# One lost there is one to the ranks' meeting point, before any rank knows another.
MEETING_FILE = "torch/distributed/rendezvous.py"
CONNECTION_FAILED = "ConnectionError"
DATA_WORKER_LOST = "DataLoader worker exited unexpectedly"
# Also what a file that is locked or not ready raises: only a fork says that there are too many.
FORK_ERROR = "BlockingIOError"
FORK_REFUSED = "Cannot fork"
SYNTAX_ERRORS = ("SyntaxError", "IndentationError", "TabError")
# What tracebacks of earlier versions of Python call an f-string of a file.
_PART_OF_FILE = "<fstring>"


OWN_PATH = (
    "the job's own variable `PATH` replaces the node's and has no such program: write "
    "`export PATH=FOLDER:$PATH` in the command instead, or the program's full path"
)
OWN_MEMORY_LIMIT = (
    "the command limits the memory of its programs by `ulimit`: raise that limit or leave it out"
)
RANKS_ON_ONE_PORT = (
    "rank {} of this job listens on port {}: let one rank of a node bind it, add the rank to the "
    "port's number, or bind port 0 to get a free one"
)
WINDOWS_LINES = (
    "`\\r` is a carriage return: the file that this comes from, such as a shell script or a list, "
    "has Windows line endings; rewrite it by `sed -i 's/\\r$//' FILE`"
)
# As Python and bash write a value that ends in one; bytes may be of a protocol that asks for it.
_CARRIAGE_RETURN = re.compile(
    r"(?<![bB])['\"][^'\"\n]{0,300}[^\\'\"\s]\\r['\"]|\$'[^'\n]{0,300}\\r'"
)
_MEMORY_LIMIT = re.compile(r"\bulimit\s+(?:-[A-Za-z]+\s+)*-[A-Za-z]*[vdm]")


def limits_memory(command: str) -> bool:
    """Whether a command limits the memory that its programs may have."""
    return bool(_MEMORY_LIMIT.search(command))


def ends_in_carriage_return(text: str) -> bool:
    """Whether a value that an error quotes does."""
    return bool(_CARRIAGE_RETURN.search(text))


@dataclass(frozen=True)
class Match:
    """A matching rule with its hint filled in; `subject` is what it names, such as a module."""

    code: str
    hint: str
    consequence: bool
    line: str
    subject: str = ""


def match_text(text: str, *, has_peers: bool, exit_code: int = 0) -> Match | None:
    """The first matching rule; `line` is the line that it matched.

    Args:
        text: an error's type and message, or the last lines of a log; of a long one its beginning
            and its end are searched.
        has_peers: whether the job has other ranks, so that failures may be consequences of theirs.
    """
    if len(text) > 2 * _SEARCHED:
        text = f"{text[:_SEARCHED]}\n{text[-_SEARCHED:]}"
    for rule in RULES:
        if rule.exit_code and rule.exit_code != exit_code:
            continue
        if rule.code == "peer_lost" and not has_peers:
            continue
        match = _compiled(rule.pattern).search(text)
        if match is not None:
            line = text[text.rfind("\n", 0, match.end()) + 1 :].partition("\n")[0].strip()
            consequence = rule.consequence and has_peers
            subject = (match.lastgroup and match[match.lastgroup]) or ""
            return Match(rule.code, _filled(rule.hint, match), consequence, line, subject)
    return None


def match_rule(rule: Rule, has_peers: bool = False) -> Match:
    """The match of a rule that something else than its pattern shows."""
    return Match(rule.code, rule.hint, rule.consequence and has_peers, "")


def match_syntax_error(files: Sequence[str]) -> Match | None:
    """The match of a syntax error in a text that has no file.

    Args:
        files: those of the traceback's frames; the last one is what is not valid.
    """
    if not files or not files[-1].startswith("<") or files[-1] == _PART_OF_FILE:
        return None
    if len(files) > 1:
        return match_rule(WRONG_TEXT_COMPILED)
    if files[-1] == "<stdin>":
        return match_rule(WRONG_PROGRAM_FROM_INPUT)
    return match_rule(WRONG_PROGRAM_IN_COMMAND)


def signal_name(signum: int) -> str:
    """`SIGSEGV`; `signal 40` for one without a name."""
    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"


def package(module: str) -> str:
    """What to install for `import module`."""
    name = module
    while name:
        if name in PACKAGES:
            return PACKAGES[name]
        name = name.rpartition(".")[0]
    return module.partition(".")[0]


_cache: dict[str, re.Pattern[str]] = {}


def _compiled(pattern: str) -> re.Pattern[str]:
    # On first use, so that a node whose ranks succeed compiles none.
    if pattern not in _cache:
        _cache[pattern] = re.compile(pattern, re.MULTILINE)
    return _cache[pattern]


def _filled(hint: str, match: re.Match[str]) -> str:
    groups = {name: (value or "")[:_LONGEST_NAME] for name, value in match.groupdict().items()}
    if "module" in groups:
        groups["package"] = package(groups["module"].strip("."))
    return hint.format(**groups)
