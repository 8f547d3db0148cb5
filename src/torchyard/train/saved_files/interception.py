"""torch.save to a path below the job's outputs, in the background, for scripts that don't know.

Owns: which calls are taken over, and what else of Python waits for a file that is being written.
Leaves: copying and writing to background, locks to drafts.
Always: code that opens, renames, lists or asks for such a file, in this process or another rank of
the node, sees the whole new one. A call that can't be taken over is torch's own.

What Python does with files is seen by an audit hook; functions that raise no audit event, such as
os.stat, are replaced by ones that wait first. Source: https://peps.python.org/pep-0578/
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import stat
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torchyard.train.saved_files import drafts, file_writer
from torchyard.train.saved_files.background import BackgroundFiles, NoMemory

_FOLDER = ".torchyard-saves"
_TABLE = "torch_saves.csv"
_LOG = logging.getLogger("torchyard.train")

# How many of an event's first arguments are paths.
_PATH_EVENTS = {
    "open": 1, "os.rename": 2, "os.link": 2, "os.symlink": 2, "os.remove": 1, "os.truncate": 1,
    "os.utime": 1, "os.chmod": 1, "os.chown": 1, "os.listdir": 1, "os.scandir": 1,
}  # fmt: skip
# These would take the file before for the new one, so they are told when that was never written.
_READING_EVENTS = ("open", "os.rename", "os.link")
# A folder is waited for where its entries are seen or moved; to ask whether it is there is free.
_FOLDER_EVENTS = ("open", "os.listdir", "os.scandir", "os.rename")
_PROGRAM_EVENTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn")
_UNAUDITED = ("stat", "lstat", "access")


class Interception:
    """One for each process.

    Args:
        outputs: the job's; only files below it are taken over.
        logs: where the table of saves goes.
    """

    def __init__(self, outputs: Path, logs: Path | None) -> None:
        self._given = os.path.abspath(outputs)
        self._outputs = os.path.realpath(outputs)
        self._starts = (self._given + os.sep, self._outputs + os.sep)
        # Beside the outputs: on their filesystem, and not uploaded.
        self._drafts = Path(os.path.dirname(self._outputs)) / _FOLDER
        self.files = BackgroundFiles(logs / _TABLE if logs else None)
        self._has_said = False

    def save(
        self, original: Callable[..., None], obj: Any, f: Any, *args: Any, **kwargs: Any
    ) -> None:
        """As `original`, which is torch.save."""
        target = None
        if isinstance(f, (str, os.PathLike)) and not drafts.is_unwatched():
            with drafts.unwatched():
                target = self._target(f)
                if target is not None and self._save(original, obj, target, *args, **kwargs):
                    return
            self.wait_for(f)
        original(obj, f, *args, **kwargs)

    def wait_for(self, path: Any, event: str = "", is_read: bool = False) -> None:
        """Return when the file at `path` is not being written.

        Raises:
            OSError: with `is_read`, that of a save that failed.
        """
        if not isinstance(path, (str, bytes, os.PathLike)):
            return
        text = os.fsdecode(path)
        full = text if text.startswith(os.sep) else os.path.abspath(text)
        is_below = (full + os.sep).startswith(self._starts)
        if not (is_below or self.files.is_pending() or (is_read and self.files.failed)):
            return
        with drafts.unwatched():
            real = os.path.realpath(full)
            if not (real + os.sep).startswith(self._outputs + os.sep):
                return
            if os.path.isdir(real):
                if event in _FOLDER_EVENTS:
                    self.wait()
                return
            self.files.wait_for(real)
            if drafts.names(self._drafts):
                drafts.wait(drafts.path_of(self._drafts, real))
        if is_read and real in self.files.failed:
            error = self.files.failed[real]
            raise OSError(error.errno, f"{error.strerror}, so torch.save did not write it", real)

    def wait(self) -> None:
        """Return when no file is being written."""
        with drafts.unwatched():
            self.files.wait()
            drafts.wait_for_all(self._drafts)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        count = _PATH_EVENTS.get(event)
        if count is None:
            if event in _PROGRAM_EVENTS and not drafts.is_unwatched():
                self.wait()
        elif not drafts.is_unwatched():
            # What is only renamed onto or written again is not read.
            is_read = event in _READING_EVENTS and not _is_written(event, arguments)
            for number, path in enumerate(arguments[:count]):
                self.wait_for("." if path is None else path, event, is_read and number == 0)

    def finish(self) -> None:
        """At the script's end: write what is left; a file that was lost fails the script."""
        self.files.close()
        if not self.files.failed or hasattr(sys, "last_value"):
            return
        for path, error in self.files.failed.items():
            print(f"error: torch.save could not write `{path}`: {error.strerror}", file=sys.stderr)
        print("hint: the file that was there is as it was; free space, and run the job again",
              file=sys.stderr, flush=True)  # fmt: skip
        sys.stdout.flush()
        os._exit(1)

    def _target(self, f: Any) -> str | None:
        """Where the file will be, without links; None if torch.save has to write it itself."""
        path = os.path.abspath(os.fsdecode(f))
        if not path.startswith(self._starts):
            return None
        real = os.path.realpath(path)
        folder = os.path.dirname(real)
        try:
            if os.stat(folder).st_dev != os.stat(self._drafts.parent).st_dev:
                return None
            status = os.stat(real)
        except FileNotFoundError:
            status = None
        except OSError:
            return None
        if not (real.startswith(self._outputs + os.sep) and os.path.isdir(folder)):
            return None
        if status is None:
            return real if os.access(folder, os.W_OK | os.X_OK) else None
        is_plain = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
        return real if is_plain and os.access(real, os.W_OK) else None

    def _save(
        self, original: Callable[..., None], obj: Any, target: str, *args: Any, **kwargs: Any
    ) -> bool:
        """False where there can be no draft, such as on a filesystem without locks."""
        draft = drafts.path_of(self._drafts, target)
        try:
            os.makedirs(self._drafts, exist_ok=True)
        except OSError:
            return False
        reason: Exception
        try:
            self.files.save(lambda stream: original(obj, stream, *args, **kwargs), draft, target)
            return True
        except NoMemory as error:
            reason = error
        except OSError as error:  # such as no more processes or files
            reason = error
        if not self._has_said:
            self._has_said = True
            _LOG.warning("torch.save writes while training waits: %s", reason)
        try:
            descriptor = drafts.begin(draft)
        except OSError:
            return False
        try:
            original(obj, str(draft), *args, **kwargs)
            file_writer.commit(descriptor, str(draft), target)
        except BaseException:
            os.unlink(draft)
            raise
        finally:
            drafts.end(descriptor)
        self.files.failed.pop(target, None)
        return True


def _is_written(event: str, arguments: tuple[Any, ...]) -> bool:
    """Whether the file that is opened is emptied."""
    return event == "open" and isinstance(arguments[2], int) and bool(arguments[2] & os.O_TRUNC)


def install(serialization: Any, variables: Mapping[str, str] = os.environ) -> Interception | None:
    """Take over torch.save, whose module has just been loaded; None outside of jobs."""
    outputs = variables.get("AZUREML_OUTPUT_DIRECTORY")
    if not outputs:
        return None
    logs = variables.get("AZUREML_LOGDIRECTORY_PATH")
    interception = Interception(Path(outputs), Path(logs) if logs else None)
    original = serialization.save

    @functools.wraps(original)
    def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        interception.save(original, obj, f, *args, **kwargs)

    serialization.save = save
    for name in _UNAUDITED:
        _wait_first(interception, name)
    sys.addaudithook(interception.audit)
    os.register_at_fork(after_in_child=interception.files.forget)
    atexit.register(interception.finish)
    _finish_processes(interception)
    return interception


def _wait_first(interception: Interception, name: str) -> None:
    """Replace a function of `os` by one that waits for the file."""
    original = getattr(os, name)

    @functools.wraps(original)
    def waiting(path: Any, *args: Any, **kwargs: Any) -> Any:
        if not drafts.is_unwatched():
            interception.wait_for(path)
        return original(path, *args, **kwargs)

    for functions in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks,
                      os.supports_effective_ids):  # fmt: skip
        if original in functions:
            functions.add(waiting)
    setattr(os, name, waiting)
    # Python 3.10's pathlib keeps functions of its own.
    accessor = getattr(sys.modules.get("pathlib"), "_normal_accessor", None)
    if accessor is not None and getattr(accessor, name, None) is original:
        setattr(accessor, name, waiting)


def _finish_processes(interception: Interception) -> None:
    """Processes of `multiprocessing` end without atexit."""

    def register() -> None:
        from multiprocessing import util

        util.Finalize(None, interception.finish, exitpriority=-100)

    # In a forked child, after `multiprocessing` has forgotten the parent's.
    from multiprocessing import util

    util.register_after_fork(interception, lambda _: register())
