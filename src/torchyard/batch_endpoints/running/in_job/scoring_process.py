"""A process that calls the scoring script; it gets mini-batches and answers with rows.

Owns: loading the script, `init`, `run` and `shutdown`, what `run` may return, where in the user's
code an error happened.
Leaves: time limits, tries and starting it again to processes.py.
Always: what the script prints goes to the job's log, never between the answers; each request gets
one answer.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import sys
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

_LONGEST_ERROR = 2000


class BadResult(Exception):
    """`run` returned something that is not a list of rows."""


def main() -> None:
    # Its own modules would stand before those of the environment.
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != here]
    requests = os.fdopen(int(sys.argv[1]), "r", encoding="utf-8")
    answers = os.fdopen(int(sys.argv[2]), "w", encoding="utf-8")
    with_rows = sys.argv[3] == "rows"

    def answer(body: dict[str, Any]) -> None:
        answers.write(json.dumps(body) + "\n")
        answers.flush()

    root, entry = os.environ["AML_APP_ROOT"], os.environ["AZUREML_ENTRY_SCRIPT"]
    level = os.environ.get("TORCHYARD_BATCH_LEVEL", "info").upper()
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        module = load(root, entry)
        module.init()
    except BaseException as error:  # a script may raise SystemExit
        traceback.print_exc()
        answer({"error": f"`{entry}`: {described(error, root)}"})
        sys.exit(0)
    answer({"ready": True})
    for line in requests:
        files = json.loads(line)["files"]
        try:
            rows, count = rows_of(module.run(files), with_rows)
            body: dict[str, Any] = {"rows": rows, "count": count}
        except BaseException as error:
            traceback.print_exc()
            body = {"error": described(error, root)}
        answer(body)
    if callable(getattr(module, "shutdown", None)):
        module.shutdown()


def load(root: str, entry: str) -> Any:
    """The script as a module, once it has what it must have."""
    path = os.path.join(root, entry)
    if not os.path.isfile(path):
        raise FileNotFoundError("it is not in the deployment's code")
    for folder in (root, os.path.dirname(path)):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # what pickles by its module's name is found again
    spec.loader.exec_module(module)
    for function in ("init", "run"):
        if not callable(getattr(module, function, None)):
            raise BadResult(f"it does not define {function}()")
    return module


def rows_of(result: Any, with_rows: bool) -> Any:
    """The lines that are written, and how many files' worth they are."""
    if hasattr(result, "to_csv") and hasattr(result, "columns"):
        text = result.to_csv(header=False, index=False) if with_rows else ""
        return ([text.rstrip("\n")] if text else []), len(result)
    if result is None or isinstance(result, (str, bytes, dict)) or not hasattr(result, "__iter__"):
        what = "nothing" if result is None else type(result).__name__
        raise BadResult(
            f"run() returned {what}: it returns a list, with one element for each file, or a "
            "DataFrame"
        )
    items = list(result)
    return ([line_of(item) for item in items] if with_rows else []), len(items)


def line_of(item: Any) -> str:
    """A text as it is, anything else as `str` writes it; one line, so that lines can be counted."""
    if hasattr(item, "to_csv") and hasattr(item, "columns"):
        table: str = item.to_csv(header=False, index=False)
        return table.rstrip("\n")
    text = item if isinstance(item, str) else str(item)
    if "\n" in text or "\r" in text:
        text = '"{}"'.format(text.replace('"', '""'))
    return text


def described(error: BaseException, root: str) -> str:
    """The exception, and the last line of the user's own code that took part."""
    name = type(error).__name__
    text = str(error) if isinstance(error, BadResult) else f"{name}: {error}"
    where = "" if isinstance(error, SyntaxError) else raised_at(error, root)
    return text.rstrip(": ")[:_LONGEST_ERROR] + where


def raised_at(error: BaseException, root: str) -> str:
    line = ""
    top = os.path.realpath(root)
    here = os.path.dirname(os.path.realpath(__file__))
    for frame in traceback.extract_tb(error.__traceback__):
        path = os.path.realpath(frame.filename)
        is_users_code = path.startswith(top + os.sep) and not path.startswith(here + os.sep)
        if is_users_code and os.path.isfile(path):
            location = (os.path.relpath(path, top), frame.lineno, frame.name)
            line = " ({}, line {}, in {})".format(*location)
    return line


if __name__ == "__main__":
    main()
