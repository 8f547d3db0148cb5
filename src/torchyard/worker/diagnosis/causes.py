"""Which known cause a text speaks of, and the words for signals.

Owns: finding the rule that fits, filling in its hint, the names of packages and signals.
Leaves: the rules to cause_rules.py, gathering what a rank left behind to artifacts.py, whose
failure is the job's to diagnosis.py.
Always: the first rule that fits wins.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass

from torchyard.worker.diagnosis.cause_rules import RULES

# What people import and what they install, where the two differ.
PACKAGES: Mapping[str, str] = {
    "PIL": "pillow",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "git": "GitPython",
    "google.protobuf": "protobuf",
    "lightning_fabric": "lightning",
    "pytorch_lightning": "pytorch-lightning",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "PyYAML",
}

_BUS = "mostly `/dev/shm` is full: use fewer data-loader workers or smaller batches"
_NATIVE = "compiled code failed: see the Python frames that called it"
SIGNALS: Mapping[int, tuple[str, str, str]] = {
    signal.SIGSEGV: ("segmentation_fault", "a segmentation fault", _NATIVE),
    signal.SIGABRT: ("aborted", "a library gave up and aborted", "it mostly says why in the log"),
    signal.SIGBUS: ("bus_error", "a bus error", _BUS),
    signal.SIGFPE: ("arithmetic_fault", "a division by zero in compiled code", _NATIVE),
    signal.SIGILL: (
        "illegal_instruction",
        "an instruction that this processor does not have",
        "a package was built for another processor: install one that fits this machine's",
    ),
    signal.SIGKILL: ("killed", "by hand or by another program, not by torchyard", ""),
    signal.SIGTERM: ("terminated", "sent by another program, not by torchyard", ""),
    signal.SIGINT: ("interrupted", "sent by another program, not by torchyard", ""),
    signal.SIGPIPE: ("broken_pipe", "the reader of its pipe was gone", ""),
    signal.SIGXCPU: ("signaled", "over its limit of CPU time", "see `ulimit -t` in the command"),
    signal.SIGXFSZ: ("signaled", "over its limit of file size", "see `ulimit -f` in the command"),
}


# A lost connection in these files is one to a data-loader worker.
DATA_LOADER_FILES = ("torch/utils/data/dataloader.py", "/multiprocessing/connection.py")
DATA_WORKER_LOST = "DataLoader worker exited unexpectedly"


@dataclass(frozen=True)
class Match:
    """A rule that fits, its hint filled in."""

    code: str
    hint: str
    consequence: bool
    line: str


def of_text(text: str, *, together: bool, exit_code: int = 0) -> Match | None:
    """The first rule that fits; `line` is the one that it was found in.

    Args:
        text: an error's type and message, or the last lines of a log.
        together: whether other ranks run, so that there can be consequences of their ends.
    """
    for rule in RULES:
        if rule.exit_code and rule.exit_code != exit_code:
            continue
        if rule.code == "peer_lost" and not together:
            continue
        found = _compiled(rule.pattern).search(text)
        if found is not None:
            line = text[text.rfind("\n", 0, found.end()) + 1 :].partition("\n")[0].strip()
            return Match(rule.code, _filled(rule.hint, found), rule.consequence and together, line)
    return None


def signal_name(signum: int) -> str:
    """`SIGSEGV`; `signal 40` for one without a name."""
    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"


def package(module: str) -> str:
    """What to install for `import module`."""
    if module in PACKAGES:
        return PACKAGES[module]
    top = module.partition(".")[0]
    return PACKAGES.get(top, top)


_cache: dict[str, re.Pattern[str]] = {}


def _compiled(pattern: str) -> re.Pattern[str]:
    # On first use: a node whose ranks end well compiles none.
    if pattern not in _cache:
        _cache[pattern] = re.compile(pattern, re.MULTILINE)
    return _cache[pattern]


def _filled(hint: str, found: re.Match[str]) -> str:
    groups = {name: value or "" for name, value in found.groupdict().items()}
    if "module" in groups:
        groups["package"] = package(groups["module"].strip("."))
    return hint.format(**groups)
