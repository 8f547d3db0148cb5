"""The page that `yard --help` prints.

Owns: the nouns and verbs of `yard`, each with its line of help.
Leaves: parsing to parsing/group.py.
Always: it imports nothing, so that `yard --help` costs no more than Python itself.
"""

from __future__ import annotations

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
