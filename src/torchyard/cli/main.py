"""The entry point of the `yard` command.

Owns: `yard --help` and `yard --version`, which need no imports.
Leaves: parsing and errors to parsing/group.py, each noun to its own module.
Always: `yard --help` and `yard --version` import neither click nor a command.
"""

from __future__ import annotations

import gc
import sys

from torchyard.cli.help_page import help_page

# A command is over before it has any garbage; looking for some between imports, as Python does at
# every 700 objects, takes a tenth of `yard job list`.
_COLLECTED_AT = 20_000


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[:1] == ["az"]:
        from torchyard.cli.az_lines import NotServed, without_az

        try:
            arguments = without_az(arguments[1:])
        except NotServed as error:
            sys.stderr.write(f"{error}\n")
            sys.exit(2)
    if arguments in (["--help"], ["-h"]):
        sys.stdout.write(help_page())
    elif arguments == ["--version"]:
        from torchyard import __version__

        sys.stdout.write(f"yard {__version__}\n")
    else:
        sys.exit(_run(arguments))


def _run(arguments: list[str]) -> int:
    gc.set_threshold(_COLLECTED_AT)
    try:
        from torchyard.cli.parsing.group import run

        return run(arguments)
    except KeyboardInterrupt:  # pressed while modules were still being imported
        sys.stderr.write("\nerror: interrupted\n")
        return 130


if __name__ == "__main__":
    main()
