"""The reference of the native HTTP API for the documentation site, made of its OpenAPI document.

Owns: which routes stand on the page, and under which heading.
Leaves: the document to openapi_file.py, the words to the routes.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import openapi_file

_HEAD = """# HTTP API

`yard`, the Python SDK and the web page use these routes. Send a token as `Authorization: Bearer TOKEN`: `yard user token create` makes one. A running server describes each route in full at `/openapi.json`: parameters, bodies, answers, with examples. `WORKSPACE` stands for `/v1/workspaces/` and a workspace's name. [What is stable](stability.md) says that these routes may change with any MINOR release.

An error is `{"error": {"code": …, "message": …, "hint": …}}`. Codes are stable; messages are not.

Azure ML's and MLflow's protocols are served beside it: [Azure ML's own clients](azure-ml.md), [MLflow's tracking API](mlflow.md), [MLflow's model registry](mlflow-registry.md).
"""  # noqa: E501
# Between the server and its nodes, and of the web page alone.
_INTERNAL = {"attempts", "bundles", "page"}


def text() -> str:
    document = json.loads(openapi_file.text())
    sections: dict[str, list[str]] = defaultdict(list)
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            (tag,) = operation["tags"]
            if tag not in _INTERNAL:
                sections[tag].append(_row(path, method, operation))
    parts = [
        f"## {tag.capitalize()}\n\n| route | |\n|---|---|\n" + "\n".join(rows) + "\n"
        for tag, rows in sorted(sections.items())
    ]
    return "\n".join([_HEAD, *parts])


def _row(path: str, method: str, operation: Mapping[str, Any]) -> str:
    described = operation.get("description") or f"{operation['summary'].capitalize()}."
    words = " ".join(described.split("\n\n")[0].split()).replace("|", "\\|")
    shown = path.replace("/v1/workspaces/{workspace}/", "WORKSPACE/")
    return f"| `{method.upper()} {shown}` | {words} |"


if __name__ == "__main__":
    print(text(), end="")
