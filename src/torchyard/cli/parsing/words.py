"""Other tools' names for our verbs, for hints.

Owns: the words of az, kubectl, docker and shells, with the verb or advice for each.
Leaves: printing the hint to group.py.
Always: no word here is a command of ours.
"""

from __future__ import annotations

VERBS: dict[str, tuple[str, ...]] = {
    "submit": ("create",),
    "run": ("create",),
    "start": ("create",),
    "new": ("create",),
    "add": ("create",),
    "register": ("create",),
    "upload": ("create",),
    "attach": ("create",),
    "ls": ("list",),
    "get": ("show", "list"),
    "describe": ("show",),
    "status": ("show",),
    "info": ("show",),
    "log": ("logs", "get-logs", "stream"),
    "tail": ("logs", "get-logs", "stream"),
    "follow": ("stream",),
    "attach-logs": ("stream",),
    "stop": ("cancel", "delete"),
    "kill": ("cancel",),
    "rm": ("delete", "archive"),
    "remove": ("delete", "archive"),
    "fetch": ("download",),
    "pull": ("download",),
    "resubmit": ("clone",),
    "rerun": ("clone",),
    "check": ("validate",),
    "edit": ("update",),
    "set": ("update",),
    "plot": ("metrics",),
    "metric": ("metrics",),
    "history": ("metrics",),
    "export": ("metrics",),
    "diff": ("compare",),
    "prune": ("delete",),
}
"""The verbs that a noun may have instead, likeliest first."""

HINTS = {
    "az": "leave out `az ml`: write `yard job list`",
    "ml": "leave out `ml`: write `yard job list`",
    "config": "name the workspace once with `yard configure --defaults workspace=NAME`, or for a "
    "folder with `yard workspace config -w NAME`",
    "account": "`yard whoami` shows who you are; `yard login URL` switches servers",
    "run": "write `yard job create -f job.yml --stream`",
    "submit": "write `yard job create -f job.yml --stream`",
    "logs": "write `yard job logs NAME`, or `yard server logs`",
    "status": "write `yard job list`, or `yard server status`",
    "diagnose": "write `yard doctor`",
    "registry": "registries are not supported, except as `azureml://registries/…` in job files",
    "schedule": "schedules are not supported yet; use cron with `yard job create`",
}
"""Hints for words used in place of a noun."""
