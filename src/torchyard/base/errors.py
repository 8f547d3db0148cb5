"""The one error tree.

    TorchyardError
    ├── InvalidInput          an argument or a request is wrong (400)
    │   └── InvalidSpec       a job, environment or compute document is wrong (400)
    ├── NotAuthenticated      no token, or one that is not good (401)
    ├── Forbidden             a good token without the permission (403)
    ├── NotFound              the named thing does not exist (404)
    ├── Conflict              the name is taken, or the state forbids it (409)
    ├── LimitExceeded         a quota or a limit is exceeded (413)
    ├── TooManyRequests       too many requests of that kind; try again later (429)
    ├── BuildFailed           an environment could not be built (422)
    ├── Unreachable           the server does not answer (503)
    │   ├── ServerBusy            it has too much to do just now; try again (503)
    │   └── DatabaseUnreachable   the server's database does not answer (503)
    │       ├── DiskFull          the disk is full (507)
    │       └── DiskFailed        the disk can't be written (503)
    ├── Timeout               something took longer than the caller's `timeout_s`; it goes on
    ├── JobFailed             a job that was waited for did not complete (client/job.py)
    └── Internal              torchyard's own fault (500)

Owns: error classes, their codes and their JSON form.
Leaves: what to say to those who raise.
Always: a message names the thing, the hint gives the next step; both without a full stop. What
Python prints of an error that nobody catches has its hint and no control characters.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from types import TracebackType
from typing import Any

from torchyard.base.terminal_text import escaped

_LONGEST_COMPARED = 100
_MOST_COMPARED = 500


class TorchyardError(Exception):
    """An error for the user.

    Args:
        message: names the thing; names in backquotes.
        hint: the next step; empty when there is none.
        code: stable; the class's own when empty.
        at: the place in the document that is wrong, as keys and list positions.
    """

    code = "error"
    http_status = 500
    exit_code = 2
    is_located = False
    """Whether the message begins with a place in a file: `job.yml:7:3`."""
    others: tuple[TorchyardError, ...] = ()
    """What else is wrong with the same document."""
    meant_key = ""
    """Of an unknown key: the one that was meant."""
    is_of_key = False
    """Whether the key is what is wrong, whatever its value."""

    def __init__(
        self, message: str, hint: str = "", *, code: str = "", at: Sequence[str | int] = ()
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code or type(self).code
        self.at = tuple(at)
        if hint:
            # What Python, from 3.11 on, and notebooks print below an error that nobody catches.
            self.__notes__ = _notes(self)

    def __str__(self) -> str:
        return escaped(self.message)

    def add_others(self, others: Sequence[TorchyardError]) -> None:
        """Keep what else is wrong, each once, for tracebacks, too; those have no others then."""
        said, new = {(self.at, self.message)}, []
        for each in [one for other in others for one in (other, *other.others)]:
            each.others = ()
            if (each.at, each.message) not in said:
                said.add((each.at, each.message))
                new.append(each)
        self.others = tuple(new)
        if self.others:
            lines = [
                f"{word}: {escaped(text)}"
                for each, hint in self.all_with_hints()
                for word, text in (("error", each.message), ("hint", hint))
                if text
            ]
            self.__notes__ = lines[1:]  # the traceback ends with the first message

    def all_with_hints(self) -> list[tuple[TorchyardError, str]]:
        """The error and its others, each with its hint; one that several share in a row stands
        with the last of them.
        """
        every = [self, *self.others]
        following = [*(each.hint for each in every[1:]), ""]
        return [
            (each, "" if each.hint == next_hint else each.hint)
            for each, next_hint in zip(every, following, strict=True)
        ]

    def to_json(self) -> dict[str, Any]:
        """The body of an HTTP error answer; `others` only where there are some."""
        body: dict[str, Any] = {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "at": list(self.at),
        }
        if self.others:
            body["others"] = [other.to_json()["error"] for other in self.others]
        return {"error": body}


def _notes(error: TorchyardError) -> list[str]:
    return [f"hint: {escaped(error.hint)}"] if error.hint else []


def moved(
    error: TorchyardError, move: Callable[[tuple[str | int, ...]], tuple[str | int, ...]]
) -> InvalidSpec:
    """The error as one of a document, at the place that `move` makes of its own; so its others."""
    copy = InvalidSpec(error.message, error.hint, code=error.code, at=move(error.at))
    copy.meant_key = error.meant_key
    copy.add_others([moved(each, move) for each in error.others])
    return copy


def print_hints() -> None:
    """Have Python print the hint of an error that nobody catches, as it does by itself from 3.11.

    A program calls it once, as the SDK does with its first name.
    """
    if sys.version_info >= (3, 11):
        return
    before = sys.excepthook

    def excepthook(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        before(kind, error, trace)
        if isinstance(error, TorchyardError):
            for note in getattr(error, "__notes__", ()):
                print(note, file=sys.stderr)

    sys.excepthook = excepthook


class InvalidInput(TorchyardError):
    code = "invalid_input"
    http_status = 400


class InvalidSpec(InvalidInput):
    code = "invalid_spec"


class NotAuthenticated(TorchyardError):
    code = "not_authenticated"
    http_status = 401


class Forbidden(TorchyardError):
    code = "forbidden"
    http_status = 403


class NotFound(TorchyardError):
    code = "not_found"
    http_status = 404


class Conflict(TorchyardError):
    code = "conflict"
    http_status = 409


class LimitExceeded(TorchyardError):
    code = "limit_exceeded"
    http_status = 413


class TooManyRequests(TorchyardError):
    code = "too_many_requests"
    http_status = 429


class BuildFailed(TorchyardError):
    code = "build_failed"
    http_status = 422


class Unreachable(TorchyardError):
    code = "unreachable"
    http_status = 503
    exit_code = 1


class ServerBusy(Unreachable):
    """Nothing was done. A response carries `Retry-After`, and clients of ours wait by themselves.

    Which class it is on the client's side follows from `code`.
    """

    code = "server_busy"


class DatabaseUnreachable(Unreachable):
    code = "database_unreachable"


class DiskFull(DatabaseUnreachable):
    """Whatever waits for a database waits for space on a disk, too."""

    code = "disk_full"
    http_status = 507


class DiskFailed(DatabaseUnreachable):
    code = "disk_failed"


class Timeout(TorchyardError):
    """Raised by the SDK alone: what was waited for goes on."""

    code = "timeout"
    exit_code = 1


class Internal(TorchyardError):
    code = "internal"
    exit_code = 1


_BY_STATUS: dict[int, type[TorchyardError]] = {
    kind.http_status: kind
    for kind in (
        InvalidInput,
        NotAuthenticated,
        Forbidden,
        NotFound,
        Conflict,
        LimitExceeded,
        TooManyRequests,
        BuildFailed,
        Unreachable,
        DiskFull,
        Internal,
    )
}


def from_answer(http_status: int, error: Mapping[str, Any]) -> TorchyardError:
    """The error that an HTTP answer carries, of what `to_json` wrote below `error`."""
    kind = _BY_STATUS.get(http_status, InvalidInput if http_status < 500 else Internal)
    answer = kind(
        str(error.get("message", f"the server answered {http_status}")),
        str(error.get("hint") or ""),
        code=str(error.get("code") or ""),
        at=tuple(error.get("at") or ()),
    )
    others = error.get("others")
    if isinstance(others, list):
        answer.add_others([from_answer(http_status, other) for other in others])
    return answer


def nearest(word: str, words: Iterable[str]) -> str:
    """The one of `words` that is most like `word`, or an empty string when none is alike."""
    import difflib

    # The comparison takes time that grows with the product of the lengths.
    if len(word) > _LONGEST_COMPARED:
        return ""
    candidates = islice((each for each in words if len(each) <= _LONGEST_COMPARED), _MOST_COMPARED)
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    matches = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.65)
    return by_lower[matches[0]] if matches else ""


def did_you_mean(word: str, words: Collection[str], otherwise: str = "") -> str:
    """The hint that names the nearest of `words`.

    Args:
        otherwise: the hint when none is alike; by default it lists all.
    """
    guess = nearest(word, words)
    if guess:
        return f"did you mean `{guess}`?"
    return otherwise or f"use one of: {', '.join(words)}"
