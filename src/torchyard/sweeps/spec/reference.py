"""docs/reference/sweep-file.md, from the models of the file.

`python -m torchyard.sweeps.spec.reference` prints it.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchyard.base.documents.models import keys
from torchyard.base.documents.pages import table
from torchyard.sweeps.spec import early_termination, sampling, space_reading
from torchyard.sweeps.spec.limits import LimitsFile
from torchyard.sweeps.spec.objectives import ObjectiveFile
from torchyard.sweeps.spec.own_settings import OwnSettings
from torchyard.sweeps.spec.sweep_spec import SweepFile
from torchyard.sweeps.spec.trials import TrialFile
from torchyard.sweeps.spec.typed import Types

_INTRODUCTION = """
Made from the models in `src/torchyard/sweeps/spec/` by `python -m
torchyard.sweeps.spec.reference`; edit those, not this. A file of Azure's `type: sweep` is read as
it is. Words of a fixed set are read in any case, with `_`, `-` or in camelCase.
"""
_COMMAND = """
`${{search_space.lr}}` in the command stands for the trial's value, and the script finds it in the
variable `AZUREML_SWEEP_lr`, too. In a component's command, `${{inputs.lr}}` of a hyperparameter
that is not an input means the same. A value is one word of the shell, or a part of the word that it
stands in, whatever it holds: write `values: ["a b"]` without quotes of your own around it. Where
the shell can't quote, in here-documents, comments and backticks, only plain values are accepted.

A mapping among the values of a choice is a search space of its own: `${{search_space.model.width}}`
is the `width` of the mapping that was drawn for `model`. Where only some mappings have it, write
`$[[--width ${{search_space.model.width}}]]`: such a part is left out otherwise.
`${{search_space.model}}` itself is the mapping as JSON.
"""

_SPACE_NOTE = """
Rounding is `round(x / q) * q`; what would fall outside the bounds is the nearest multiple inside.
Values are whole numbers where `q` is. With `logbase` in a random `sampling_algorithm`, powers of it
replace those of e.
"""

_SAMPLING_NOTE = """
`torchyard: {sampler: …}` names one of Optuna's samplers or of these. `bayesian`, `tpe`, `gp`,
`cmaes`, `qmc`, `nsgaii` and `nsgaiii` need `pip install 'torchyard[sweeps]'` beside the server, and
`gp` needs PyTorch there, too; random and grid search need nothing. Failed trials, and those whose
metric is not a number, are reported to the sampler as failed; trials that were stopped early, with
their last value.

With a seed, a sweep suggests the same parameters each time its trials give the same values, however
often the server is killed. A sampler that learns then waits: with C trials at once, trial N is
suggested from trials 0 to N - C, whichever of the later ones was quicker. Without one, a seed is
drawn at submission and recorded, and a suggestion uses whatever has ended.
"""

_POLICY_NOTE = """
Azure's policies also take `evaluation_interval` (default 1) and `delay_evaluation` (default 0): one
value of the primary metric is one interval, and a policy decides at each multiple of the former
that is not below the latter. Trials are compared with all that logged as many values. With slack,
what is allowed is best / (1 + slack_factor) or best - slack_amount for a metric to be maximized,
and best * (1 + slack_factor) or best + slack_amount for one to be minimized. A trial whose primary
metric is not finite ends at once, with any policy and without one. A notice says when a trial
completes before its policy decides for the first time.

The rungs of `asha` are at `min_intervals` (default 1) times the powers of `reduction_factor`
(default 3) below `max_intervals`. The best 1 / `reduction_factor` of those that got to a rung go
on.
"""


def page() -> str:
    lines = [
        "# The sweep file, key by key",
        *_paragraphs(_INTRODUCTION),
        *table("The sweep", SweepFile),
        *table("`trial`", TrialFile),
        *_paragraphs(_COMMAND),
        *_types("`search_space`", space_reading.TYPES),
        *_paragraphs(_SPACE_NOTE),
        *_types("`sampling_algorithm`", sampling.TYPES),
        *_paragraphs(_SAMPLING_NOTE),
        *table("`objective`", ObjectiveFile),
        *_types("`early_termination`", early_termination.TYPES),
        *_paragraphs(_POLICY_NOTE),
        *table("`limits`", LimitsFile),
        *table("Properties that a sweep reads", OwnSettings),
    ]
    return "\n".join(lines) + "\n"


def _paragraphs(text: str) -> list[str]:
    """One line a paragraph, as the docs have them."""
    return [
        line
        for paragraph in text.strip().split("\n\n")
        for line in ("", " ".join(paragraph.split("\n")))
    ]


def _types(title: str, types: Types) -> Iterator[str]:
    """A line for each type, with its own keys."""
    yield from ("", f"## {title}", "", "| `type` | keys | |", "|---|---|---|")
    for name, file in types.files.items():
        written = ", ".join(f"`{key}`" for key in keys(file) if key != "type")
        yield f"| `{name}` | {written} | {types.values[name].note} |"


if __name__ == "__main__":
    print(page(), end="")
