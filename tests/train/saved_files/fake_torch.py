"""torch.save as the interception sees it, without torch: a function that writes to a path or file.

`begin` intercepts it in this process, so only scripts of tests import this. What was saved is
written slowly: the writer is stopped until somebody has waited for a while.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
import types
from pathlib import Path
from typing import Any

from torchyard.train.saved_files import drafts, interception
from torchyard.train.saved_files.interception import Interception

STOPPED_S = 0.3


def save(obj: Any, f: Any, protocol: int = 2) -> None:
    if isinstance(f, (str, os.PathLike)):
        with open(f, "wb") as file:
            save(obj, file, protocol)
        return
    f.write(pickle.dumps(obj, protocol=protocol))
    f.flush()


def load(f: Any) -> Any:
    with open(f, "rb") as file:
        return pickle.load(file)


def begin() -> tuple[Any, Interception]:
    """A module with `save`, which is intercepted for ./outputs."""
    os.makedirs("outputs", exist_ok=True)
    os.makedirs("logs", exist_ok=True)
    module = types.SimpleNamespace(save=save)
    variables = {
        "AZUREML_OUTPUT_DIRECTORY": os.path.abspath("outputs"),
        "AZUREML_LOGDIRECTORY_PATH": os.path.abspath("logs"),
    }
    taken = interception.install(module, variables)
    assert taken is not None
    module.save("the writer has begun", "outputs/first.pt")
    taken.wait()
    return module, taken


def save_slowly(module: Any, taken: Interception, obj: Any, path: str) -> None:
    """Return from `save` while the file is not written, and let it be written a little later."""
    process = taken.files._writer.process
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    module.save(obj, path)
    with drafts.unwatched():
        before = Path(path).read_bytes() if Path(path).exists() else b""
    assert taken.files.is_pending() and before != pickle.dumps(obj, protocol=2)
    threading.Timer(STOPPED_S, os.kill, (process.pid, signal.SIGCONT)).start()
