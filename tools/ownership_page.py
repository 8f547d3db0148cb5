"""Print the page of whose things are in the docs: `python tools/ownership_page.py`.

Owns: how the rules are displayed.
Leaves: the rules to workspaces/ownership.py.
Always: the page is generated from the rules that the actions ask, and from nothing else.
"""

from __future__ import annotations

from torchyard.workspaces import ownership
from torchyard.workspaces.ownership import Rule
from torchyard.workspaces.types import Role

_HEAD = (
    "# Whose it is",
    "",
    "Generated from `src/torchyard/workspaces/ownership.py` by `make docs`; edit the rules there, "
    "not this page.",
    "",
    "Everything belongs to the person who made it, and stays theirs whoever changes it. What is "
    "your own you change as a data scientist; of another's, and of what nobody is known to have "
    "made, this table says who may do what. Whose a name with versions is, is whose its first "
    "version is. A running job does what its owner may, at most as a contributor. "
    "[Roles](../guides/shared-server.md#people-and-roles) say what else each role may.",
    "",
    "| of another's | to | data scientist | contributor | owner |",
    "|---|---|---|---|---|",
)
_FOOT = (
    "",
    "**takes over**: code runs as the person who wrote it. Who changes what runs as another says "
    "so by a word of its own, `--take-over` of `yard`, `torchyard: {take_over: true}` in a file, "
    "or a tag or property `torchyard.take_over` with Azure's clients. It then belongs to them, "
    "and all of it, whoever wrote it, runs with their account and rights; the refusal without the "
    "word says so. The same word takes over what belonged to a person who was removed.",
)
_ROLES = (Role.DATA_SCIENTIST, Role.CONTRIBUTOR, Role.OWNER)


def page() -> str:
    """The page of whose things are."""
    rows = sorted(ownership.RULES, key=lambda rule: (rule.noun, rule.takes_over, rule.operation))
    return "\n".join([*_HEAD, *(_row(rule) for rule in rows), *_FOOT]) + "\n"


def _row(rule: Rule) -> str:
    word = "takes over" if rule.takes_over else "yes"
    cells = (word if role.rank >= rule.others.rank else "" for role in _ROLES)
    return f"| {rule.noun} | {rule.operation} | {' | '.join(cells)} |"


if __name__ == "__main__":
    print(page(), end="")
