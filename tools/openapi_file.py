"""Write the native API's OpenAPI document, from which the page's types are made.

    python tools/openapi_file.py ui/openapi.json

Owns: making an app without a server, a text that is the same on every machine.
Leaves: the document to the app, the types to `npm run types`.
Always: the version is left out, so that a release changes nothing.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from torchyard.app import application
from torchyard.executors.fake import FakeExecutor


def text() -> str:
    """The document as JSON, sorted."""
    with tempfile.TemporaryDirectory(prefix="openapi-") as folder:
        parts = application.build(
            Path(folder) / "home", "http://127.0.0.1:1", os.environ, executor=FakeExecutor()
        )
        try:
            document = application.create_app(parts).openapi()
        finally:
            parts.services.db.close()
    document["info"]["version"] = ""
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def main() -> None:
    Path(sys.argv[1]).write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
