"""Print the page of failure codes in the docs: `python tools/failure_codes_page.py`.

Owns: how the rules are displayed.
Leaves: the rules to diagnosis/cause_rules.py.
Always: the page is generated from the rules alone.
"""

from __future__ import annotations

from torchyard.worker.diagnosis.cause_rules import OTHER_CODES, RULES, Rule
from torchyard.worker.preflight import checks

_PREFLIGHT = (
    "Found by the nodes of a distributed job; see `docs/guides/preflight.md`. An error fails the "
    "job, a warning becomes a notice."
)


def page() -> str:
    """The page of failure codes."""
    lines = [
        "# Failure codes",
        "",
        "Generated from `src/torchyard/worker/diagnosis/cause_rules.py` by `python "
        "tools/failure_codes_page.py`; edit the rules, not this page.",
        "",
        "## Found by a pattern",
        "",
        "Matched against an error's type and message, or the last lines that a rank printed; the "
        "first matching rule is used. A *consequence* is a failure that ranks suffer because "
        "another rank failed; it is reported only if no other cause is found.",
        "",
        "| code | what to do | consequence |",
        "|---|---|---|",
    ]
    rows = (
        f"| `{rule.code}` | {_display_hint(rule)} | {'yes' if rule.consequence else ''} |"
        for rule in RULES
    )
    lines += dict.fromkeys(rows)
    lines += ["", "## Found in other ways", "", "| code | meaning |", "|---|---|"]
    lines += [f"| `{code}` | {meaning} |" for code, meaning in OTHER_CODES]
    lines += ["", "## Found before the first rank starts", "", _PREFLIGHT, ""]
    lines += ["| code | meaning | severity |", "|---|---|---|"]
    lines += [f"| `{code}` | {meaning} | {severity} |" for code, severity, meaning in checks.CODES]
    return "\n".join(lines) + "\n"


def _display_hint(rule: Rule) -> str:
    names = {"package": "<package>", "library": "<library>", "command": "<command>"}
    names |= {
        "module": "<module>",
        "missing": "<module>",
        "interface": "<interface>",
        "status": "<status>",
    }
    return rule.hint.format(**names, path="<path>").replace("|", "\\|") or "see the traceback"


if __name__ == "__main__":
    print(page(), end="")
