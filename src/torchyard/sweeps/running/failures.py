"""When too many trials have failed for a sweep to go on.

Owns: the rule, with `torchyard: {max_failed_trials: n}` and without.
Leaves: what a failed trial is to trial_ends.py, ending the sweep to rounds.py.
Always: a trial that a user canceled, or that was stopped early, has not failed.
"""

from __future__ import annotations

from collections.abc import Sequence

from torchyard.jobs.records.types import JobError
from torchyard.sweeps.records.types import Outcome, Trial

CODE = "too_many_failed_trials"
# Without a limit of its own, a sweep ends when none of so many trials went well …
_FIRST = 5
# … or when more than half of at least so many failed.
_HALF_OF = 10
_KEY = "max_failed_trials"


def error(trials: Sequence[Trial], maximum: int | None) -> JobError | None:
    """Why a sweep with these trials does not go on; None while it does."""
    ended = [
        trial
        for trial in trials
        if trial.outcome in (Outcome.COMPLETED, Outcome.STOPPED, Outcome.FAILED)
    ]
    failed = [trial for trial in ended if trial.outcome is Outcome.FAILED]
    if not failed:
        return None
    if maximum is not None:
        if len(failed) <= maximum:
            return None
        rule = f"{len(failed)} of {len(ended)} trials failed, and `{_KEY}` is {maximum}"
    elif len(failed) == len(ended) >= _FIRST:
        rule = f"each of the first {len(ended)} trials failed"
    elif len(ended) >= _HALF_OF and 2 * len(failed) > len(ended):
        rule = f"{len(failed)} of {len(ended)} trials failed"
    else:
        return None
    return _error(rule, failed[-1])


def error_at_end(trials: Sequence[Trial]) -> JobError | None:
    """As `error`, of a sweep whose trials have all ended: at least one must have gone well."""
    failed = [trial for trial in trials if trial.outcome is Outcome.FAILED]
    good = [trial for trial in trials if trial.outcome in (Outcome.COMPLETED, Outcome.STOPPED)]
    if good or not failed:
        return None
    return _error(f"all {len(failed)} trials failed" if len(failed) > 1 else "its trial failed",
                  failed[-1])  # fmt: skip


def _error(rule: str, last: Trial) -> JobError:
    return JobError(
        CODE,
        f"{rule}; the last one, `{last.name}`: {last.reason or 'failed'}",
        f"see `yard job show -n {last.name}`; `torchyard: {{{_KEY}: n}}` allows n of them",
    )
