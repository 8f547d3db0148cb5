"""What other commands call our verbs, so that a hint can name them.

Owns: words of az, kubectl, docker and shells, and the verb or advice for each.
Leaves: saying it to group.py.
Always: a word here is no command of ours.
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
    "logs": ("stream",),
    "log": ("stream",),
    "tail": ("stream",),
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
"""The verbs that a noun may have instead, the likeliest first."""

HINTS = {
    "az": "leave out `az ml`: write `yard job list`",
    "ml": "leave out `ml`: write `yard job list`",
    "configure": "name the workspace once with `yard workspace config -w NAME`, or set "
    "TORCHYARD_WORKSPACE",
    "config": "name the workspace once with `yard workspace config -w NAME`, or set "
    "TORCHYARD_WORKSPACE",
    "account": "who you are says `yard whoami`; another server is reached by `yard login URL`",
    "run": "write `yard job create -f job.yml --stream`",
    "submit": "write `yard job create -f job.yml --stream`",
    "logs": "write `yard job stream NAME`, or `yard server logs`",
    "status": "write `yard job list`, or `yard server status`",
    "diagnose": "write `yard doctor`",
    "online-endpoint": "endpoints are not there yet",
    "batch-endpoint": "endpoints are not there yet",
    "registry": "there are no registries; `azureml://registries/…` names in job files are read",
    "schedule": "schedules are not there yet; use cron with `yard job create`",
}
"""Said for a word that stands where a noun should."""
