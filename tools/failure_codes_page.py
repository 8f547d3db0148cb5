"""The page of the codes of failures in the docs; `python tools/failure_codes_page.py` prints it.

Owns: how the rules are shown.
Leaves: the rules to diagnosis/cause_rules.py.
Always: made from the rules alone.
"""

from __future__ import annotations

from torchyard.worker.diagnosis.cause_rules import OTHER_CODES, RULES, Rule
from torchyard.worker.preflight import checks

_PREFLIGHT = (
    "By the nodes of a distributed job together; see `docs/guides/preflight.md`. An error fails "
    "the job, a warning is a notice of it."
)


def page() -> str:
    """The page of codes in the docs."""
    lines = [
        "# The codes of failures",
        "",
        "Made from the rules in `src/torchyard/worker/diagnosis/cause_rules.py` by `python "
        "tools/failure_codes_page.py`; edit those, not this.",
        "",
        "## Known by what is said",
        "",
        "By an error's type and message, or by the last lines that a rank printed; the first rule "
        "that fits is taken. A *consequence* is what ranks suffer when another one is gone: it is "
        "named only when no cause is found.",
        "",
        "| code | what to do | consequence |",
        "|---|---|---|",
    ]
    rows = (
        f"| `{rule.code}` | {_shown_hint(rule)} | {'yes' if rule.consequence else ''} |"
        for rule in RULES
    )
    lines += dict.fromkeys(rows)
    lines += ["", "## Known otherwise", "", "| code | what it is |", "|---|---|"]
    lines += [f"| `{code}` | {words} |" for code, words in OTHER_CODES]
    lines += ["", "## Found before the first rank starts", "", _PREFLIGHT, ""]
    lines += ["| code | what it is | when found |", "|---|---|---|"]
    lines += [f"| `{code}` | {words} | {how} |" for code, how, words in checks.CODES]
    return "\n".join(lines) + "\n"


def _shown_hint(rule: Rule) -> str:
    names = {"package": "<package>", "library": "<library>", "command": "<command>"}
    return rule.hint.format(**names, path="<path>").replace("|", "\\|") or "see the traceback"


if __name__ == "__main__":
    print(page(), end="")
