"""How much each parameter of a sweep matters.

Owns: the way from trials to Optuna's evaluator of importances.
Leaves: drawing to the clients.
Always: Optuna is an extra: without it the reason is said, and nothing else fails.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from torchyard.sweeps.records.types import Outcome, Trial
from torchyard.sweeps.spec.sweep_spec import SweepSpec

_LIMIT_S = 60.0
_FEWEST = 4
# In a process of its own: the server never imports Optuna, which brings numpy and more.
_PROGRAM = """
import json, sys
import optuna
optuna.logging.set_verbosity(optuna.logging.ERROR)
direction, rows = json.load(sys.stdin)
names = list(rows[0][0])
distributions = {
    name: optuna.distributions.CategoricalDistribution(
        sorted({json.dumps(row[0][name]) for row in rows})
    )
    if any(isinstance(row[0][name], (str, bool, dict)) for row in rows)
    else optuna.distributions.FloatDistribution(
        min(row[0][name] for row in rows), max(row[0][name] for row in rows)
    )
    for name in names
}
study = optuna.create_study(direction=direction)
for parameters, value in rows:
    shown = {
        name: json.dumps(parameters[name])
        if isinstance(distributions[name], optuna.distributions.CategoricalDistribution)
        else float(parameters[name])
        for name in names
    }
    study.add_trial(optuna.trial.create_trial(
        params=shown, distributions=distributions, value=value))
evaluator = optuna.importance.PedAnovaImportanceEvaluator()
print(json.dumps(optuna.importance.get_param_importances(study, evaluator=evaluator)))
"""


def importances(spec: SweepSpec, trials: Sequence[Trial]) -> tuple[dict[str, float], str]:
    """(by parameter, from 0 to 1, the highest first; why there is none)."""
    if find_spec("optuna") is None:
        return {}, "importances need Optuna: install `torchyard[sweeps]` where the server runs"
    done = [trial for trial in trials if trial.outcome is Outcome.COMPLETED and trial.values]
    # Nested choices have parameters that not all trials have.
    common = [name for name in spec.space.parameters if all(name in t.parameters for t in done)]
    varied = [name for name in common if len({str(t.parameters[name]) for t in done}) > 1]
    if len(done) < _FEWEST or not varied:
        return {}, f"importances need {_FEWEST} trials or more that ended well, and differ"
    rows = [({name: t.parameters[name] for name in varied}, t.values[0]) for t in done]
    try:
        ended = subprocess.run(
            [sys.executable, "-I", "-c", _PROGRAM],
            input=json.dumps([spec.objective.goal, rows]),
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return {}, f"importances were not found within {_LIMIT_S:g} s"
    if ended.returncode != 0:
        last = (ended.stderr.strip().splitlines() or ["it failed"])[-1]
        return {}, f"Optuna could not tell importances: {last[:300]}"
    return dict(json.loads(ended.stdout)), ""
