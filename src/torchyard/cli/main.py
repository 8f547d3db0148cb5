"""The `yard` command's front door.

Owns: the nouns and their one-line descriptions, the pages that cost no imports.
Leaves: parsing and errors to group.py, each noun to its own module.
Always: `yard --help` and `yard --version` import neither click nor a command.
"""

from __future__ import annotations

import sys

NOUNS = {
    "job": "Submit, list, follow, cancel and download jobs.",
    "experiment": "List experiments, under which jobs are kept together.",
    "compute": "Clusters of nodes that jobs run on.",
    "environment": "What jobs run in: list, build, export, open a shell in one.",
    "data": "Register, list and download data assets.",
    "datastore": "Places where data lies: folders, buckets, containers.",
    "component": "Register and list components, the steps of pipelines.",
    "model": "Register, list and download models.",
    "workspace": "Create, list and show workspaces; write config.json.",
    "user": "People of a shared server: their roles and tokens.",
    "quota": "How much people may use, and asking for more.",
    "server": "Start, stop and look at the server of this machine.",
}
VERBS = {
    "login": "Have commands go to a shared server.",
    "logout": "Forget a shared server.",
    "whoami": "Say who you are there, and what you may do.",
    "client-env": "Print the variables that bring Azure ML's own SDKs here.",
    "jupyterlab": "Have JupyterLab show Azure ML's notebook widget.",
    "audit": "Say who did what, for owners.",
    "gc": "Make room on the server's disk.",
    "doctor": "Say what is wrong with this machine, and what to do.",
    "completion": "Print a shell's completion script: bash, zsh or fish.",
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

Verbs without a noun:
{verbs}

Examples:
  yard job create -f job.yml --stream    train, and watch
  yard job list                          what ran and what runs
  yard job show -n NAME                  one job: stages, metrics, what went wrong
"""


def help_page() -> str:
    return HELP.format(nouns=_lines(NOUNS), verbs=_lines(VERBS))


def _lines(pages: dict[str, str]) -> str:
    return "\n".join(f"  {name:<12} {text}" for name, text in pages.items())


def main() -> None:
    arguments = sys.argv[1:]
    if arguments in (["--help"], ["-h"]):
        sys.stdout.write(help_page())
    elif arguments == ["--version"]:
        from torchyard import __version__

        sys.stdout.write(f"yard {__version__}\n")
    else:
        sys.exit(_run(arguments))


def _run(arguments: list[str]) -> int:
    try:
        from torchyard.cli.group import run

        return run(arguments)
    except KeyboardInterrupt:  # that came while modules were still imported
        sys.stderr.write("\nerror: interrupted\n")
        return 130


if __name__ == "__main__":
    main()
