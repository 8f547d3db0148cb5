"""The page that `yard --help` prints.

Owns: the verbs of `yard` without a noun, each with its module and its line of help.
Leaves: the nouns to the features, parsing to parsing/group.py.
Always: it imports texts alone, so that `yard --help` costs no more than Python itself.
"""

from __future__ import annotations

from torchyard.features import features

NOUNS = {noun: page for feature in features() for noun, page in feature.nouns.items()}
VERBS = {
    "demo": ("cli.commands.demo", "Train a small network on two local nodes."),
    "init": ("cli.commands.init", "Lay out a project that trains as it is."),
    "ui": ("cli.ui", "Open the web page."),
    "login": ("cli.commands.login", "Log in to a shared server."),
    "logout": ("cli.commands.login", "Log out of a shared server."),
    "whoami": ("cli.commands.login", "Show who you are logged in as, and your role."),
    "configure": ("cli.commands.configure", "Set the default workspace."),
    "client-env": (
        "cli.commands.client_env",
        "Print the variables that point Azure ML's SDKs at this server.",
    ),
    "jupyterlab": (
        "cli.commands.jupyterlab",
        "Install Azure ML's notebook widget into JupyterLab.",
    ),
    "mcp": ("cli.mcp.command", "Serve jobs to AI agents by the Model Context Protocol."),
    "schema": (
        "cli.commands.schema",
        "Print the JSON Schema of a job file or another, for editors.",
    ),
    "audit": ("cli.commands.audit", "List changes and refused requests; for owners."),
    "disk": ("cli.commands.disk", "Show what fills the server's disk."),
    "gc": ("cli.commands.gc", "Free disk space on the server."),
    "doctor": ("cli.doctor.command", "Diagnose this machine."),
    "completion": ("cli.parsing.completion", "Print a completion script for bash, zsh or fish."),
}
"""Each with its module and its line of help."""

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


def _lines(pages: dict[str, tuple[str, str]]) -> str:
    return "\n".join(f"  {name:<17} {text}" for name, (_, text) in pages.items())
