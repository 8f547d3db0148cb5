"""`yard job sweep`, `trials`, `sweep-extend`: what only sweeps have.

Owns: the verbs, their options.
Leaves: ranges to client/sweeps/, pages and charts to sweep_page.py, submitting to creation.py.
Always: what `sweep` makes of a job's file can be printed instead of submitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click
from click.core import ParameterSource

from torchyard.base.assignments import At
from torchyard.base.errors import InvalidInput
from torchyard.cli.parsing.group import Verb
from torchyard.cli.parsing.options import Session, common, document_from, name_argument
from torchyard.cli.terminal import tables

# Keys of a sweep's document that options write.
_OPTIONS: dict[At, str] = {
    ("objective",): "--goal",
    ("limits", "max_total_trials"): "--trials",
    ("limits", "max_concurrent_trials"): "--concurrent",
    ("sampling_algorithm",): "--algorithm",
    ("sampling_algorithm", "seed"): "--seed",
    ("early_termination",): "--early-termination",
}
# What `--extend` leaves as it was.
_NEW_SWEEP = (
    *("file", "parameters", "goal", "concurrent", "algorithm", "seed", "early_termination"),
    *("assignments", "name", "dry_run"),
)


@click.command("sweep", cls=Verb)
@click.option("-f", "--file", default="", metavar="FILE", help="YAML file of a command job.")
@click.option(
    "-p",
    "--param",
    "parameters",
    multiple=True,
    metavar="NAME=RANGE",
    help="A hyperparameter: lr=loguniform:1e-5,1e-1, opt=choice:sgd,adam, n=int:1,8; repeatable.",
)
@click.option("--goal", default="", metavar="GOAL", help="minimize:METRIC or maximize:METRIC.")
@click.option("--trials", type=click.IntRange(min=1), required=True, help="Number of trials.")
@click.option(
    "--concurrent",
    type=click.IntRange(min=1),
    default=None,
    help="Trials that run at once. Default: all.",
)
@click.option(
    "--algorithm",
    default="random",
    show_default=True,
    metavar="NAME",
    help="random, grid, bayesian, or one of Optuna's samplers.",
)
@click.option("--seed", type=click.IntRange(min=0), default=None, help="Make it repeatable.")
@click.option(
    "--early-termination",
    default="",
    metavar="POLICY",
    help="bandit:SLACK_FACTOR, median_stopping or truncation_selection:PERCENT.",
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="A.B=VALUE",
    help="Set a key of the job's file.",
)
@click.option("-n", "--name", default="", help="Name of the sweep. Default: a generated one.")
@click.option(
    "--extend",
    "extended",
    default="",
    metavar="NAME",
    help="Let sweep NAME go on to --trials in all, as `sweep-extend` does.",
)
@click.option("-s", "--stream", "streamed", is_flag=True, help="Follow the sweep until it ends.")
@click.option("--dry-run", is_flag=True, help="Print the sweep's file instead of submitting it.")
@common
def sweep(
    session: Session,
    file: str,
    parameters: tuple[str, ...],
    goal: str,
    trials: int,
    concurrent: int | None,
    algorithm: str,
    seed: int | None,
    early_termination: str,
    assignments: tuple[str, ...],
    name: str,
    extended: str,
    streamed: bool,
    dry_run: bool,
) -> int:
    """Search for the best hyperparameters of a command job.

    Ranges are of the values themselves. The command uses a hyperparameter as
    `${{search_space.NAME}}`, or as the input of that name, which it replaces.

    \b
    Example: yard job sweep -f job.yml --param lr=loguniform:1e-5,1e-1 \\
                 --param opt=choice:sgd,adam --trials 40 --concurrent 4 \\
                 --goal minimize:val_loss --algorithm bayesian --seed 1
             yard job sweep --extend tuning --trials 80
    """
    from torchyard.cli.jobs import creation, page, streaming
    from torchyard.client.trials import documents

    if extended:
        _only_trials_and_stream()
        return _extend(session, extended, trials, streamed)
    for option, value in (("--file", file), ("--param", parameters), ("--goal", goal)):
        if not value:
            raise click.UsageError(f"Missing option '{option}'.")
    document = document_from(file, assignments)
    try:
        document.value = documents.sweep_of(
            document.value,
            _ranges(parameters),
            goal,
            trials=trials,
            concurrent=concurrent,
            algorithm=algorithm,
            seed=seed,
            early_termination=early_termination,
        )
    except InvalidInput as error:
        raise document.locate(error) from error.__cause__
    document.places = _positions(document.places, parameters)
    if dry_run:
        click.echo(tables.yaml_text(document.value), nl=False)
        return 0
    job = creation.submit(session, document, name)
    if streamed:
        return streaming.exit_code(streaming.stream(session.client(), job.name, None))
    tables.one(session.form, job.raw, lambda: page.page(job.raw))
    return 0


def _extend(session: Session, name: str, max_total_trials: int, streamed: bool) -> int:
    from torchyard.cli.jobs import streaming

    job = session.client().sweeps.extend(name, max_total_trials)
    if streamed:
        return streaming.exit_code(streaming.stream(session.client(), job.name, None))
    tables.one(session.form, job.raw, lambda: f"{job.name}  {tables.status(job.status)}")
    return 0


def _only_trials_and_stream() -> None:
    context = click.get_current_context()
    for parameter in context.command.params:
        source = context.get_parameter_source(str(parameter.name))
        if parameter.name in _NEW_SWEEP and source is ParameterSource.COMMANDLINE:
            raise InvalidInput(
                f"`{parameter.opts[-1]}` does not go with `--extend`",
                "a sweep that goes on keeps its job, its space and its goal: give `--trials` alone",
            )


def _positions(job: Mapping[At, str], parameters: Sequence[str]) -> dict[At, str]:
    """Where each key of the sweep's document was written: in the job's file, or as an option."""
    positions = {("trial", *at): position for at, position in job.items()} | dict(job)
    if ("limits", "timeout") in job:
        positions["limits", "trial_timeout"] = job["limits", "timeout"]
    for text in parameters:
        name = text.partition("=")[0].strip()
        positions["search_space", name] = f"--param {name}"
    return positions | _OPTIONS


def _ranges(parameters: tuple[str, ...]) -> dict[str, str]:
    ranges: dict[str, str] = {}
    for text in parameters:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise InvalidInput(
                f"`--param {text[:80]}` is not a hyperparameter",
                "write `--param lr=loguniform:1e-5,1e-1`",
            )
        if name.strip() in ranges:
            raise InvalidInput(f"`--param {name.strip()[:80]}` is given twice", "give it once")
        ranges[name.strip()] = value
    return ranges


@click.command("trials", cls=Verb)
@name_argument("job", "jobs")
@click.option(
    "--csv", "csv_file", default="", metavar="FILE", help="Write all of them as CSV to FILE."
)
@click.option("--rungs", is_flag=True, help="List the rungs of ASHA or Hyperband instead.")
@common
def trials(session: Session, name: str, csv_file: str, rungs: bool) -> None:
    """List the trials of a sweep, the best first.

    \b
    Example: yard job trials -n tuning
             yard job trials -n tuning --csv trials.csv
             yard job trials -n tuning --rungs
    """
    from torchyard.cli.jobs import sweep_page

    client = session.client()
    if rungs and csv_file:
        raise InvalidInput("`--rungs` can't be written with `--csv`", "use `--rungs -o json`")
    if rungs:
        results = client.sweeps.rungs(name)
        tables.rows(session.form, results.raw, sweep_page.rung_columns(results))
        return
    if csv_file:
        content = client.sweeps.trials_csv(name)
        try:
            Path(csv_file).write_bytes(content)
        except OSError as error:
            raise InvalidInput(
                f"`{csv_file}` can't be written ({error.strerror})",
                "name a file in an existing folder",
            ) from error
        tables.files(session.form, [Path(csv_file)])
        return
    sweep_trials = client.sweeps.trials(name)
    ordered = sweep_page.best_first(sweep_trials)
    tables.rows(session.form, [trial.raw for trial in ordered], sweep_page.columns(sweep_trials))


@click.command("sweep-extend", cls=Verb)
@name_argument("job", "jobs")
@click.option(
    "--trials",
    "max_total_trials",
    type=click.IntRange(min=1),
    required=True,
    help="Number of trials in all, those that there are included.",
)
@common
def sweep_extend(session: Session, name: str, max_total_trials: int) -> None:
    """Add trials to a sweep, also to one that has ended.

    Example: yard job sweep-extend -n tuning --trials 80
    """
    _extend(session, name, max_total_trials, streamed=False)
