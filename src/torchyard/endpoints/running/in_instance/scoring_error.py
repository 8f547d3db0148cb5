"""Say in one line what went wrong in a scoring script, and where, or in the server around it.

Owns: the text, the file that the supervisor reads.
Leaves: whole tracebacks to the inference server's log.
Always: the place is the last line of the user's own code; the script is named only for what the
server says of it, or for what its own code took part in.
"""

import json
import os
import re
import sys
import traceback

LONGEST = 2000
SERVER = "azureml_inference_server_http"
_COLOUR = re.compile("\x1b\\[[0-9;]{0,32}m")


def write(message: str) -> None:
    path = os.environ["TORCHYARD_SERVING_LAST"]
    draft = f"{path}.{os.getpid()}"
    with open(draft, "w", encoding="utf-8", errors="backslashreplace") as file:
        json.dump({"message": message[:LONGEST]}, file)
    os.replace(draft, path)


def describe(error: BaseException) -> str:
    """
    Args:
        error: what ended the server's start; the script's own error is among its causes.
    """
    script = os.environ.get("AZUREML_ENTRY_SCRIPT", "score.py")
    chain = causes(error)
    last = chain[-1]
    if not any(is_servers(step) for step in chain) and not raised_at(last):
        return describe_start(error)
    if is_servers(last):
        text = str(last)
        for function in ("init", "run"):
            if f"does not have a {function}()" in text:
                return f"`{script}` does not define {function}()"
        return f"`{script}`: {text}"
    if isinstance(last, FileNotFoundError) and not raised_at(last):
        return f"`{script}` is not in the deployment's code"
    doing = "importing it raised"
    if any("Import" not in type(step).__name__ for step in chain if is_servers(step)):
        doing = "init() raised"
    text = f"{type(last).__name__}: {first_line(last)}".rstrip(": ")
    return f"`{script}`: {doing} {text}{raised_at(last)}"


def describe_start(error: BaseException) -> str:
    """What ended the server before it came to the script."""
    last = causes(error)[-1]
    text = " ".join(_COLOUR.sub("", str(last)[:LONGEST]).split())
    version = getattr(sys.modules.get(SERVER), "__version__", "")
    server = f"azureml-inference-server-http {version}".rstrip()
    return f"{server} in the environment can't start: {type(last).__name__}: {text}".rstrip(": ")


def first_line(error: BaseException) -> str:
    """What an error says first, without the colours that some libraries write."""
    lines = _COLOUR.sub("", str(error)[:LONGEST]).strip().splitlines()
    return lines[0].strip() if lines else ""


def causes(error: BaseException) -> "list[BaseException]":
    """From the error to the one it began with."""
    chain = [error]
    while len(chain) < 50:
        step = chain[-1]
        below = step.__cause__ or step.__context__
        # A script's own error may itself have been raised while it handled another.
        if below is None or (len(chain) > 1 and not is_servers(step)):
            break
        chain.append(below)
    return chain


def is_servers(error: BaseException) -> bool:
    return type(error).__module__.startswith(SERVER)


def raised_at(error: BaseException) -> str:
    """Where in the user's own code it happened; empty where none of it took part."""
    if isinstance(error, SyntaxError):
        return ""  # its text has the line
    root = os.path.realpath(os.environ.get("AML_APP_ROOT", "."))
    line = ""
    for frame in traceback.extract_tb(error.__traceback__):
        path = os.path.realpath(frame.filename)
        is_file = os.path.isfile(path)
        if is_file and path.startswith(root + os.sep) and os.sep + ".torchyard" not in path:
            line = f" ({os.path.relpath(path, root)}, line {frame.lineno}, in {frame.name})"
    return line
