"""Draw what a command printed as the README's picture.

make demo 2>&1 | .venv/bin/python tools/draw_demo.py docs/demo.svg
"""

from __future__ import annotations

import io
import re
import sys

from rich.console import Console
from rich.text import Text

COLUMNS = 100


def main() -> None:
    printed = sys.stdin.read()
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for line in printed.rstrip().splitlines():
        style = "bold green" if line.startswith("$ ") else ""
        console.print(Text.from_ansi(line, style=style), soft_wrap=False)
    svg = console.export_svg(title="make demo")
    # Rich links a web font; a picture in a repository fetches nothing.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    with open(sys.argv[1], "w") as picture:
        picture.write(svg)


if __name__ == "__main__":
    main()
