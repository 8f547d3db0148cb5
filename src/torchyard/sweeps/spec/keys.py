"""Every key of a sweep file, and how it is supported.

Owns: the tables of keys; the page of them in the docs.
Leaves: reading values to sweep_spec.py and its neighbours; the keys of a job to jobs/spec/.
Always: a key is honoured, satisfied by what is there anyway, or refused by name; never ignored.
"""

from __future__ import annotations

from collections.abc import Iterable

from torchyard.base.documents.pages import Declared as Key
from torchyard.sweeps.spec import own_settings

_READ_ONLY = "only the server writes it: remove it"
_AS_A_JOB = "as of a job: see [the job file](job-file.md)"

TOP: tuple[Key, ...] = (
    Key("$schema", "satisfied", "for editors; not read"),
    Key("type", "honoured", "`sweep`"),
    Key("name", "honoured", "once in a workspace; trials are `<name>_0`, `<name>_1`, …"),
    Key("display_name", "honoured", "what lists show; of trials with their number behind it"),
    Key("experiment_name", "honoured", "of the sweep and of its trials"),
    Key("description", "honoured", ""),
    Key("tags", "honoured", "of the sweep"),
    Key("properties", "honoured", "of the sweep; those below `torchyard.` also of its trials"),
    Key("trial", "honoured", "the trial, see below, or a component: `azureml:<name>:<version>`"),
    Key("search_space", "honoured", "hyperparameters by name, see below"),
    Key("sampling_algorithm", "honoured", "`random`, `grid`, `bayesian`, or a mapping, see below"),
    Key("objective", "honoured", "`{goal: minimize, primary_metric: …}`; `maximize` in any case"),
    Key("early_termination", "honoured", "a policy, see below; none when left out"),
    Key("limits", "honoured", "see below"),
    Key("inputs", "honoured", f"of every trial; {_AS_A_JOB}"),
    Key("outputs", "honoured", f"of every trial; {_AS_A_JOB}"),
    Key("compute", "honoured", f"of every trial; {_AS_A_JOB}"),
    Key("identity", "honoured", _AS_A_JOB),
    Key("resources", "honoured", "of every trial, where `trial.resources` says nothing else"),
    Key("queue_settings", "honoured", _AS_A_JOB),
    Key("parent_job_name", "honoured", "a job of the same workspace"),
    Key("torchyard", "honoured", "torchyard's own, see below; others are the trials'"),
    Key("id", "refused", _READ_ONLY),
    Key("status", "refused", _READ_ONLY),
    Key("creation_context", "refused", _READ_ONLY),
)

TRIAL: tuple[Key, ...] = (
    Key("$schema", "satisfied", "for editors; not read"),
    Key("type", "satisfied", "`command`"),
    Key("command", "honoured", "`${{search_space.<name>}}` stands for a value"),
    Key("code", "honoured", _AS_A_JOB),
    Key("environment", "honoured", _AS_A_JOB),
    Key("environment_variables", "honoured", "beside `AZUREML_SWEEP_<name>` of each value"),
    Key("distribution", "honoured", _AS_A_JOB),
    Key("resources", "honoured", _AS_A_JOB),
    Key("services", "honoured", _AS_A_JOB),
    Key("queue_settings", "honoured", _AS_A_JOB),
    Key("limits", "honoured", "as `limits.trial_timeout` of the sweep, which it goes before"),
)

SPACE: tuple[tuple[str, str, str], ...] = (
    ("choice", "values", "one of the list; a mapping in it is a space of its own"),
    ("randint", "upper", "a whole number from 0 to `upper` - 1"),
    ("uniform", "min_value, max_value", "a number from `min_value` to `max_value`"),
    ("quniform", "min_value, max_value, q", "the same, rounded to a multiple of `q` inside"),
    ("loguniform", "min_value, max_value", "e^x, x uniform: the bounds are exponents"),
    ("qloguniform", "min_value, max_value, q", "the same, rounded to a multiple of `q` inside"),
    ("normal", "mu, sigma", "normally distributed"),
    ("qnormal", "mu, sigma, q", "the same, rounded to a multiple of `q`"),
    ("lognormal", "mu, sigma", "e^x, x normally distributed"),
    ("qlognormal", "mu, sigma, q", "the same, rounded to a multiple of `q`"),
)

LIMITS: tuple[tuple[str, str], ...] = (
    ("max_total_trials", "default 1000, up to 100,000"),
    ("max_concurrent_trials", "default: `max_total_trials`, which it must not exceed"),
    ("timeout", "seconds from the sweep's start to its end; default 5,184,000 (60 days)"),
    ("trial_timeout", "seconds from the start of a trial's ranks; default: none"),
)

ALGORITHMS: tuple[tuple[str, str], ...] = (
    ("random", "each value by itself; `seed`, `rule: sobol` for an even spread, `logbase`"),
    ("grid", "every combination once, the last name's values change fastest; no continuous ranges"),
    ("bayesian", "Optuna's TPE; needs `pip install 'torchyard[sweeps]'` beside the server"),
)

POLICIES: tuple[tuple[str, str, str], ...] = (
    (
        "bandit",
        "slack_factor or slack_amount",
        "ends a trial whose best value is further from the best of all at the same interval",
    ),
    (
        "median_stopping",
        "",
        "ends a trial whose best value is worse than the median of all running averages",
    ),
    (
        "truncation_selection",
        "truncation_percentage",
        "ends a trial whose value is among that share of the worst at the same interval",
    ),
)


OWN_POLICIES: tuple[tuple[str, str, str], ...] = (
    (
        "asha",
        "max_intervals, min_intervals, reduction_factor",
        "trials pause at rungs; the best of each go on from their checkpoint",
    ),
    ("hyperband", "max_intervals, min_intervals, reduction_factor", "ASHA in several brackets"),
)

_INTRODUCTION = """
Made from the tables in `src/torchyard/sweeps/spec/` by `python -m torchyard.sweeps.spec.keys`; edit
those, not this. A file of Azure's `type: sweep` is read as it is. Words of a fixed set are read in
any case, with `_`, `-` or in camelCase.
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
metric is not a number, are told to the sampler as failed; those stopped early with their last
value.

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
    """docs/reference/sweep-file.md."""
    properties = [(f"`{name}`", says) for name, says in own_settings.TABLE.items()]
    policies = [(f"`{kind}`", _code(keys), note) for kind, keys, note in POLICIES]
    own_policies = [
        (f"`torchyard: {{early_termination: {{type: {kind}, …}}}}`", _code(keys), note)
        for kind, keys, note in OWN_POLICIES
    ]
    lines = [
        "# The sweep file, key by key",
        *_paragraphs(_INTRODUCTION),
        *_table("The sweep", ("key", "support", ""), _rows(TOP)),
        *_table("`trial`", ("key", "support", ""), _rows(TRIAL)),
        *_paragraphs(_COMMAND),
        *_table(
            "`search_space`",
            ("`type`", "keys", "value"),
            ((f"`{kind}`", _code(keys), note) for kind, keys, note in SPACE),
        ),
        *_paragraphs(_SPACE_NOTE),
        *_table(
            "`sampling_algorithm`",
            ("name", ""),
            ((f"`{name}`", note) for name, note in ALGORITHMS),
        ),
        *_paragraphs(_SAMPLING_NOTE),
        *_table(
            "`early_termination`", ("`type`", "keys", "what it does"), [*policies, *own_policies]
        ),
        *_paragraphs(_POLICY_NOTE),
        *_table("`limits`", ("key", ""), ((f"`{key}`", note) for key, note in LIMITS)),
        *_table("Properties that a sweep reads", ("property", "says"), properties),
    ]
    return "\n".join(lines) + "\n"


def _paragraphs(text: str) -> list[str]:
    """One line a paragraph, as the docs have them."""
    return [
        line
        for paragraph in text.strip().split("\n\n")
        for line in ("", " ".join(paragraph.split("\n")))
    ]


def _rows(keys: Iterable[Key]) -> Iterable[tuple[str, ...]]:
    return ((f"`{key.path}`", key.support, key.note) for key in keys)


def _code(keys: str) -> str:
    return ", ".join(
        " or ".join(f"`{word}`" for word in key.split(" or ")) for key in keys.split(", ") if key
    )


def _table(title: str, heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterable[str]:
    yield from ("", f"## {title}", "", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|")
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


if __name__ == "__main__":
    print(page(), end="")
