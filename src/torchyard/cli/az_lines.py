"""`yard az ml …` and `yard az configure …`: lines of Azure's command, as documents print them.

Owns: which of `az`'s words `yard` has, the error for all others.
Leaves: the verbs of `az ml` to the commands, which have the same names and options.
Always: a group of `az` that isn't served is refused by its name; nothing is ignored.
"""

from __future__ import annotations

from collections.abc import Sequence

AZ_FUNCTION = 'az() { yard az "$@"; }\n'
"""For a shell in which `az ml …` is typed."""


class NotServed(Exception):
    """`az` has it and `yard` does not; the text is the error and its hint."""


def without_az(words: Sequence[str]) -> list[str]:
    """The arguments of `yard` for those of `az`.

    Raises:
        NotServed: names the group that is not served.
    """
    if words and words[0] == "ml":
        return list(words[1:]) or ["--help"]
    if words and words[0] == "configure":
        return list(words)
    group = next((word for word in words if not word.startswith("-")), "")
    if not group:
        raise NotServed("error: `az` is served for `az ml`\nhint: `yard --help` lists its commands")
    hint = "remove the line, or run it with Azure's own `az`"
    if group in ("login", "logout", "account"):
        hint = "`yard login` signs in to a server; on your own machine none is needed"
    raise NotServed(
        f"error: `az {group}` is not served: of Azure's command, `yard` has `az ml`\nhint: {hint}"
    )
