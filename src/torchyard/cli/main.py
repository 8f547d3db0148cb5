"""The `yard` command's front door.

Owns: the nouns and their one-line descriptions, the pages that cost no imports.
Leaves: parsing and errors to group.py, each noun to its own module.
Always: `yard --help` and `yard --version` import neither click nor a command.
"""

from __future__ import annotations

import sys

NOUNS = {
    "job": "Submit, list, follow, cancel and download jobs.",
    "compute": "Clusters of nodes that jobs run on.",
    "model": "Register, list and download models.",
    "workspace": "Show the workspace and write its config.json.",
    "server": "Start, stop and look at the server of this machine.",
}

HELP = """\
Usage: yard [--debug] NOUN VERB [OPTIONS]

  Run PyTorch training on machines you own, with `az ml`'s verbs.

Options:
  --debug    Show where an unexpected error came from.
  --version  Show the version.
  -h, --help Show this page; `yard NOUN --help` and `yard NOUN VERB --help` say more.

Nouns:
{nouns}

Examples:
  yard job create -f job.yml --stream    train, and watch
  yard job list                          what ran and what runs
  yard job show -n NAME                  one job: stages, metrics, what went wrong
"""


def help_page() -> str:
    return HELP.format(nouns="\n".join(f"  {noun:<10} {text}" for noun, text in NOUNS.items()))


def main() -> None:
    arguments = sys.argv[1:]
    if arguments in (["--help"], ["-h"]):
        sys.stdout.write(help_page())
    elif arguments == ["--version"]:
        from torchyard import __version__

        sys.stdout.write(f"yard {__version__}\n")
    else:
        from torchyard.cli.group import run

        sys.exit(run(arguments))


if __name__ == "__main__":
    main()
