"""What stays on a node although it looks as if it should be delivered.

Owns: the notices about links among the outputs that point to nothing, about pipes, sockets and
devices there, and about model files of a job that delivers nothing.
Leaves: delivering, and finding such entries of outputs, to uploads.py; finding models outside the
job's folder to models_elsewhere.py; what the script itself has stored on the server to the caller.
Always: looks at a bounded number of entries, the outermost first, and follows no link.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from torchyard.worker.files import models_elsewhere
from torchyard.worker.files.node_folders import NodeFolders
from torchyard.worker.files.uploads import files_below, utf8_path

_MOST_NAMED = 5
_WRITE_TO_OUTPUTS = "write to `./outputs` or a named output what the job is to deliver"


def notices(
    folders: NodeFolders,
    outputs: Sequence[Path],
    missing: Sequence[Path],
    started_at: float,
    texts: Sequence[str] = (),
    has_artifacts: Callable[[], bool] = lambda: False,
) -> list[str]:
    """What to tell the user.

    Args:
        outputs: the folders that are delivered.
        missing: what among the outputs is neither a file nor a folder.
        started_at: when the ranks were started, in seconds since 1970.
        texts: the job's command and the values of its variables, which may name other folders;
            none where those of the ranks are not this node's own, as in an image.
        has_artifacts: whether the server has files that the script logged.
    """
    notices = []
    others = [path for path in missing if path.exists()]
    links = [path for path in missing if path not in others]
    if links:
        notices.append(
            "links among the outputs that point to nothing are not delivered: "
            + _list_paths(links, folders)
        )
    if others:
        notices.append(
            f"only files and folders are delivered, not pipes, sockets and devices: "
            f"{_list_paths(others, folders)}"
        )
    if not any(next(files_below(folder), None) for folder in outputs):
        notices += _models_notices(folders, started_at, texts, has_artifacts)
    return notices


def _models_notices(
    folders: NodeFolders, started_at: float, texts: Sequence[str], has_artifacts: Callable[[], bool]
) -> list[str]:
    delivered = {folders.work / "outputs", folders.work / "logs"}
    files = list(models_elsewhere.outermost_files(folders.work, delivered))
    temporary_files = models_elsewhere.outermost_files(folders.temporary)
    models = [path for path in (*files, *temporary_files) if models_elsewhere.is_model(path.name)]
    models = [path for path in models if _changed_at(path) >= started_at]
    elsewhere = []
    if texts:
        texts = [*texts, *models_elsewhere.texts_below(files)]
        elsewhere = models_elsewhere.find(texts, Path.home(), folders.node, started_at)
    if not (models or elsewhere) or has_artifacts():
        return []
    notices = []
    if models:
        notices.append(
            f"nothing is in `./outputs`, and {_list_paths(models, folders)} "
            f"{'is' if len(models) == 1 else 'are'} not kept: {_WRITE_TO_OUTPUTS}"
        )
    if elsewhere:
        notices.append(
            f"nothing is in `./outputs`, and {_list_paths(elsewhere, folders)} "
            f"{'is' if len(elsewhere) == 1 else 'are'} outside the job's folder, from where "
            f"nothing is delivered: {_WRITE_TO_OUTPUTS}"
        )
    return notices


def _changed_at(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def _list_paths(paths: Sequence[Path], folders: NodeFolders) -> str:
    tops = (("", folders.work), ("$TMPDIR/", folders.temporary), ("", folders.outputs))
    shown = []
    for path in sorted(paths)[:_MOST_NAMED]:
        below = (
            name + utf8_path(path.relative_to(top)) for name, top in tops if top in path.parents
        )
        shown.append(f"`{next(below, utf8_path(path))}`")
    more = len(paths) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
