"""The page that `yard --help` prints.

Owns: the nouns and verbs of `yard`, each with its line of help.
Leaves: parsing to parsing/group.py.
Always: it imports nothing, so that `yard --help` costs no more than Python itself.
"""

from __future__ import annotations

NOUNS = {
    "job": "Submit, list, follow, cancel and download jobs.",
    "experiment": "List experiments, which group jobs.",
    "compute": "Create, list, resize and check clusters of nodes.",
    "node": "Make this machine a node of a cluster; list, drain and remove machines.",
    "environment": "Register, list, build and export environments; open a shell in one.",
    "data": "Register, list and download data assets.",
    "datastore": "Create, list and delete datastores: folders, buckets, containers.",
    "component": "Register and list components, the steps of pipelines.",
    "model": "Register, list, download and deploy models.",
    "online-endpoint": "Create and call endpoints, divide their traffic, get their keys.",
    "online-deployment": "Deploy models behind an endpoint; read their logs.",
    "batch-endpoint": "Create endpoints that score many files, and invoke them.",
    "batch-deployment": "Deploy models behind a batch endpoint.",
    "workspace": "Create, list and show workspaces; write config.json.",
    "user": "Manage the users of a shared server, their roles and tokens.",
    "quota": "Set and list quotas; request a higher one.",
    "server": "Start, stop, inspect and back up this machine's server.",
}
VERBS = {
    "ui": "Open the web page.",
    "login": "Log in to a shared server.",
    "logout": "Log out of a shared server.",
    "whoami": "Show who you are logged in as, and your role.",
    "configure": "Set the default workspace.",
    "client-env": "Print the variables that point Azure ML's SDKs at this server.",
    "jupyterlab": "Install Azure ML's notebook widget into JupyterLab.",
    "schema": "Print the JSON Schema of a job file or another, for editors.",
    "audit": "List changes and refused requests; for owners.",
    "disk": "Show what fills the server's disk.",
    "gc": "Free disk space on the server.",
    "doctor": "Diagnose this machine.",
    "completion": "Print a completion script for bash, zsh or fish.",
}

HELP = """\
Usage: yard [--debug] NOUN VERB [OPTIONS]

  Run PyTorch training on machines you own, with `az ml`'s verbs.

Options:
  --debug    Print the traceback of an unexpected error.
  --version  Print the version.
  -h, --help Show this page; see also `yard NOUN --help` and `yard NOUN VERB --help`.

Nouns:
{nouns}

Verbs without a noun:
{verbs}

Examples:
  yard job create -f job.yml --stream    submit a job and follow its output
  yard job list                          list jobs
  yard job show -n NAME                  show a job: stages, metrics, errors
"""


def help_page() -> str:
    return HELP.format(nouns=_lines(NOUNS), verbs=_lines(VERBS))


def _lines(pages: dict[str, str]) -> str:
    return "\n".join(f"  {name:<17} {text}" for name, text in pages.items())
