"""Whether a job that failed is tried again.

Owns: the policy a job asks for by its properties, and what it says of one failure.
Leaves: queueing the job again to attempts/endings.py, starting it to scheduler.py, causes to
the worker.
Always: decided from what is stored of the attempt, so that a server started again decides alike;
nothing is tried again that a person or a limit ended.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import bounded
from torchyard.jobs.spec import own_properties

_ON = "torchyard.retry.on"
_NEVER = "torchyard.retry.never"
_ELSEWHERE = "torchyard.retry.elsewhere"
_LONGEST_PAUSE_S = 3600.0
_MOST_ATTEMPTS = 100
# A pattern is compiled on the server, where it is written.
_LONGEST_WORD = 500
_LONGEST_POLICY = 10_000
_MOST_WORDS = 50
# They come again, however often they are tried.
HOPELESS = (
    "cuda_out_of_memory",
    "cuda_missing",
    "cuda_device_missing",
    "process_limit",
    "disk_limit",
    "network_unavailable",
    "import_failed",
    "syntax_error",
    "command_not_found",
    "not_executable",
    "shell_syntax",
    "script_missing",
    "usage_error",
    "upload_refused",
    "output_unreadable",
    "input_unreadable",
    "unknown_placeholder",
)
# Neither the script's fault nor anybody's intention: a job that has a checkpoint goes on after them
# without a policy.
INTERRUPTIONS = (
    "worker_lost",
    "node_lost",
    "node_unusable",
    "nodes_missing",
    "not_responding",
    "time_limit",
    "killed",
    "terminated",
    "gpu_lost",
    "gpu_ecc_error",
)
# Somebody meant them.
_MEANT = ("canceled", "timeout", "stopped")


@dataclass(frozen=True)
class Failure:
    """What is known of how an attempt failed; `printed` are the patterns of its policy that the end
    of what its ranks printed has.
    """

    code: str
    exit_code: int
    printed: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Matcher:
    """One word of a policy: an exit code, a signal's number, a pattern, or an error's code."""

    kind: str
    exit_code: int = 0
    pattern: str = ""
    code: str = ""

    def fits(self, failure: Failure) -> bool:
        if self.kind == "log":
            return self.pattern in failure.printed
        if self.kind == "code":
            return failure.code == self.code
        return failure.exit_code == self.exit_code


@dataclass(frozen=True)
class Policy:
    """`on` empty: every failure that `never` does not name."""

    max_attempts: int = 1
    backoff_s: float = 10.0
    on: tuple[Matcher, ...] = ()
    never: tuple[Matcher, ...] = ()
    elsewhere: tuple[Matcher, ...] = ()

    @property
    def patterns(self) -> list[str]:
        """What is to be looked for in the logs."""
        matchers = (*self.on, *self.never, *self.elsewhere)
        return list(dict.fromkeys(matcher.pattern for matcher in matchers if matcher.kind == "log"))


@dataclass(frozen=True)
class Decision:
    """`pause_s` before the next attempt; `elsewhere`: not on the nodes that failed."""

    pause_s: float
    elsewhere: bool = False


def is_given(properties: Mapping[str, str]) -> bool:
    """Whether the job says itself how often it is tried."""
    return any(key.startswith("torchyard.retry.") for key in properties)


def check_lengths(properties: Mapping[str, str]) -> None:
    """Refuse a policy that takes long to read; of a new job, before `read`.

    Raises:
        InvalidInput: it is too long, or has too many entries.
    """
    for key in (_ON, _NEVER, _ELSEWHERE):
        key_path = ("properties", key)
        bounded(properties.get(key, ""), _LONGEST_POLICY, f"`{key}`", at=key_path)
        words = _words(properties, key)
        if len(words) > _MOST_WORDS:
            raise InvalidSpec(
                f"`{key}` has {len(words)} entries; the limit is {_MOST_WORDS}",
                "join patterns by `|`",
                at=key_path,
            )
        for word in words:
            bounded(word, _LONGEST_WORD, f"an entry of `{key}`", at=key_path)


def read(properties: Mapping[str, str]) -> Policy:
    """
    Raises:
        InvalidSpec: a value is not understood.
    """
    retry_keys = [key for key in properties if key.startswith("torchyard.retry.")]
    maximum = own_properties.count(properties, "torchyard.retry.max_attempts", 1, 1, _MOST_ATTEMPTS)
    if retry_keys and maximum == 1 and retry_keys != ["torchyard.retry.max_attempts"]:
        raise InvalidSpec(
            f"`{retry_keys[0]}` says how to retry, but the job is tried only once",
            "add `torchyard.retry.max_attempts: 3` to the properties",
            at=("properties", retry_keys[0]),
        )
    never = _matchers(properties, _NEVER)
    if _NEVER not in properties:
        never = tuple(Matcher("code", code=code) for code in HOPELESS)
    return Policy(
        maximum,
        own_properties.number(properties, "torchyard.retry.backoff_s", 10.0, 0.0, _LONGEST_PAUSE_S),
        _matchers(properties, _ON),
        never,
        _matchers(properties, _ELSEWHERE),
    )


def decide(policy: Policy, attempt: int, failure: Failure) -> Decision | None:
    """What follows the failed attempt number `attempt`, counted from 1; None: the job has failed.

    What `on` or `elsewhere` names is tried again even if the default of `never` names it too.
    """
    if attempt >= policy.max_attempts or failure.code in _MEANT:
        return None
    elsewhere = _any(policy.elsewhere, failure)
    matches = elsewhere or _any(policy.on, failure)
    if not matches and (policy.on or _any(policy.never, failure)):
        return None
    pause_s = min(_LONGEST_PAUSE_S, policy.backoff_s * 2.0 ** (attempt - 1))
    return Decision(pause_s, elsewhere)


def _any(matchers: Iterable[Matcher], failure: Failure) -> bool:
    return any(matcher.fits(failure) for matcher in matchers)


def _matchers(properties: Mapping[str, str], key: str) -> tuple[Matcher, ...]:
    return tuple(_matcher(key, word) for word in _words(properties, key))


def _words(properties: Mapping[str, str], key: str) -> Sequence[str]:
    written = properties.get(key, "")
    if written.strip().startswith("["):
        return own_properties.words(properties, key)
    # A comma inside /…/ is the pattern's own.
    words = []
    start = position = 0
    while position < len(written):
        if written[position] == "/":
            position = _pattern_end(written, position)
        elif written[position] == ",":
            words.append(written[start:position].strip())
            start = position + 1
        position += 1
    return [word for word in (*words, written[start:].strip()) if word]


def _pattern_end(text: str, start: int) -> int:
    """Where the pattern that opens at `start` closes; the text's end if it doesn't."""
    position = start + 1
    while position < len(text) and text[position] != "/":
        position += 2 if text[position] == "\\" else 1
    return position


def _matcher(key: str, word: str) -> Matcher:
    kind, _, rest = word.partition(" ")
    rest = rest.strip()
    try:
        if kind == "exit":
            return Matcher("exit", exit_code=int(rest))
        if kind == "signal":
            number = int(rest) if rest.isdigit() else signal.Signals[_signal(rest)].value
            return Matcher("signal", exit_code=128 + number)
        if kind == "log" and len(rest) > 2 and rest[0] == rest[-1] == "/":
            return Matcher("log", pattern=_compile(rest[1:-1]))
    except (ValueError, KeyError, OverflowError, RecursionError, re.error) as error:
        raise _not_understood(key, word, f": {error}") from error
    if re.fullmatch(r"[a-z][a-z0-9_]*", word):
        return Matcher("code", code=word)
    raise _not_understood(key, word)


def _compile(pattern: str) -> str:
    """The pattern, if Python can read it."""
    return re.compile(pattern, re.MULTILINE).pattern


def _signal(name: str) -> str:
    return name.upper() if name.upper().startswith("SIG") else f"SIG{name.upper()}"


def _not_understood(key: str, word: str, why: str = "") -> InvalidSpec:
    return InvalidSpec(
        f"`{key}` has `{word[:80]}`, which is not understood{why}",
        "write `exit 75`, `signal SIGKILL`, `log /a pattern/` or an error's code as "
        "`yard job show` gives it, separated by commas",
        at=("properties", key),
    )
