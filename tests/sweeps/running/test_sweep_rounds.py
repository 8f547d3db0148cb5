from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from jobs import support
from sweeps.running.sweep_lab import SWEEP, SweepLab
from torchyard.base.errors import Conflict, InvalidSpec
from torchyard.jobs import actions as jobs
from torchyard.jobs import owners
from torchyard.jobs.cleanup import deletion
from torchyard.jobs.cleanup.deletion import Choice
from torchyard.jobs.files import artifacts
from torchyard.jobs.records import message_store
from torchyard.jobs.records.job_events import notices_of
from torchyard.jobs.records.types import Status
from torchyard.sweeps import actions
from torchyard.sweeps.records.types import Outcome
from torchyard.sweeps.running import rounds
from torchyard.workspaces import actions as workspaces
from torchyard.workspaces import people
from torchyard.workspaces.types import Role


def _lr(parameters: Mapping[str, Any]) -> float:
    return float(parameters["lr"])


def _hyperdrive(lab: SweepLab) -> str:
    return artifacts.file(lab.services, lab.sweep, rounds.LOG).read_text()


def test_a_sweep_runs_its_trials_within_its_limits_and_names_the_best(lab: SweepLab) -> None:
    lab.create()
    assert lab.status() is Status.NOT_STARTED
    lab.round()
    assert lab.status() is Status.RUNNING
    assert [trial.name for trial in lab.trials] == ["tuning_0", "tuning_1"]
    assert lab.job(0).parent == "tuning" and lab.job(0).type == "command"
    lab.run(_lr)
    trials = lab.trials
    assert [trial.outcome for trial in trials] == [Outcome.COMPLETED] * 4
    best = min(trials, key=lambda trial: trial.parameters["lr"])
    assert lab.status() is Status.COMPLETED and lab.sweep.exit_code is None
    assert lab.sweep.properties["best_child_run_id"] == best.name
    best_trial = actions.best(lab.services, lab.sweep)
    assert best_trial is not None and best_trial.name == best.name
    log = _hyperdrive(lab)
    assert "trial tuning_0 is created: lr=" in log and "ends as Completed: 4 completed" in log
    assert f"its best trial is {best.name}: `yard job download -n {best.name}`" in log


def test_a_goal_to_maximize_has_the_highest_as_its_best(lab: SweepLab) -> None:
    lab.create(objective={"goal": "Maximize", "primary_metric": "loss"})
    lab.run(_lr)
    best = max(lab.trials, key=lambda trial: trial.parameters["lr"])
    assert lab.sweep.properties["best_child_run_id"] == best.name


def test_a_killed_server_loses_no_trial_and_suggests_the_same(lab: SweepLab) -> None:
    lab.create(name="calm", limits={"max_total_trials": 6, "max_concurrent_trials": 2})
    lab.run(_lr)
    undisturbed = [dict(trial.parameters) for trial in lab.trials]
    lab.create(name="shaken", limits={"max_total_trials": 6, "max_concurrent_trials": 2})
    for _ in range(30):
        lab.kill()
        lab.round()
        if lab.sweep.status.ended:
            break
        for number in lab.running()[:1]:
            lab.end(number, _lr(lab.trials[number].parameters))
    assert lab.status() is Status.COMPLETED
    assert [dict(trial.parameters) for trial in lab.trials] == undisturbed
    assert [trial.name for trial in lab.trials] == [f"shaken_{n}" for n in range(6)]


def test_the_same_file_again_is_the_same_sweep_and_another_is_refused(lab: SweepLab) -> None:
    first = lab.create()
    again, is_new = actions.create(lab.services, support.WORKSPACE, SWEEP, support.ME)
    assert again.id == first.id and not is_new
    with pytest.raises(Conflict):
        lab.create(sampling_algorithm="random")


def test_bandit_cancels_a_trial_and_says_why(lab: SweepLab) -> None:
    lab.create(early_termination={"type": "bandit", "slack_factor": 0.1, "evaluation_interval": 1})
    lab.round()
    lab.log(0, [0.1, 0.1])
    lab.log(1, [0.9])
    lab.round()
    assert lab.job(1).status is Status.CANCEL_REQUESTED
    # What it logs from then on counts nowhere, not for a server that reads everything again either.
    lab.log(1, [0.05])
    lab.kill()
    lab.round()
    lab.obey_cancel(1)
    lab.round()
    stopped, job = lab.trials[1], lab.job(1)
    assert job.status is Status.CANCELED and job.error is not None
    assert job.error.code == "stopped_early" and job.error.message == stopped.reason
    assert stopped.outcome is Outcome.STOPPED and stopped.values == (0.9,)
    assert stopped.intervals == 1
    assert f"trial tuning_1 is stopped: {stopped.reason}" in _hyperdrive(lab)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_ends_no_trial(lab: SweepLab, value: float) -> None:
    lab.create()
    lab.round()
    lab.log(0, [value])
    lab.round()
    assert lab.job(0).status is not Status.CANCEL_REQUESTED
    lab.end(0, 0.001, value)
    lab.end(1, value, value)
    lab.run(_lr)
    assert [trial.outcome for trial in lab.trials] == [Outcome.COMPLETED] * 4
    assert [trial.values for trial in lab.trials[:2]] == [(0.001,), ()]
    assert lab.trials[1].reason == "it logged no number as `loss`"
    assert lab.status() is Status.COMPLETED
    assert lab.sweep.properties["best_child_run_id"] == "tuning_0"


def test_the_best_is_a_trial_that_ran_to_its_end_or_is_said_to_be_none(lab: SweepLab) -> None:
    policy = {"type": "bandit", "slack_amount": 0.0, "delay_evaluation": 2}
    lab.create(early_termination=policy, limits={"max_total_trials": 2, "max_concurrent_trials": 2})
    lab.round()
    lab.log(0, [0.5, 0.4])
    lab.round()
    # Better than what the other came to, and worse than it at that interval.
    lab.log(1, [0.45, 0.45])
    lab.round()
    lab.obey_cancel(1)
    lab.round()
    assert lab.trials[1].outcome is Outcome.STOPPED
    lab.fail(0)
    lab.round()
    assert lab.sweep.properties["best_child_run_id"] == "tuning_1"
    assert "best so far: trial tuning_1, which was stopped early, loss 0.45" in _hyperdrive(lab)


def test_a_sweep_whose_trials_log_nothing_completes_and_says_so_once(lab: SweepLab) -> None:
    lab.create(limits={"max_total_trials": 7, "max_concurrent_trials": 1})
    for _ in range(10):
        lab.round()
        for number in lab.running():
            lab.end(number)
    assert lab.status() is Status.COMPLETED and lab.sweep.error is None
    assert [trial.outcome for trial in lab.trials] == [Outcome.COMPLETED] * 7
    (notice,) = notices_of(jobs.events(lab.services.db, lab.sweep))
    assert notice.startswith("trial `tuning_0` ended and logged no `loss`")


def test_a_failed_trial_does_not_end_the_sweep(lab: SweepLab) -> None:
    lab.create()
    lab.round()
    lab.fail(0)
    lab.run(_lr)
    assert lab.trials[0].outcome is Outcome.FAILED
    assert lab.status() is Status.COMPLETED
    assert lab.sweep.properties["best_child_run_id"] != "tuning_0"


def test_a_sweep_fails_when_its_first_trials_all_fail(lab: SweepLab) -> None:
    lab.create(limits={"max_total_trials": 50, "max_concurrent_trials": 1})
    for _ in range(12):
        lab.round()
        for number in lab.running():
            lab.fail(number)
    assert lab.status() is Status.FAILED and lab.sweep.error is not None
    assert lab.sweep.error.code == "too_many_failed_trials"
    assert len(lab.trials) == 5


def test_a_limit_of_failed_trials_holds(lab: SweepLab) -> None:
    lab.create(
        limits={"max_total_trials": 8, "max_concurrent_trials": 1},
        torchyard={"max_failed_trials": 1},
    )
    for _ in range(6):
        lab.round()
        for number in lab.running():
            lab.fail(number)
    assert lab.status() is Status.FAILED
    assert len(lab.trials) == 2


def test_the_first_trial_without_the_metric_is_told_with_what_it_logged(lab: SweepLab) -> None:
    lab.create()
    lab.round()
    lab.end(0, 0.5, key="Loss")
    lab.round()
    notices = notices_of(jobs.events(lab.services.db, lab.sweep))
    assert notices == ["trial `tuning_0` ended and logged no `loss`; it logged `Loss`"] or (
        "did you mean `Loss`?" in notices[0]
    )
    lab.end(1, 0.5, key="Loss")
    lab.round()
    assert len(notices_of(jobs.events(lab.services.db, lab.sweep))) == len(notices)


@pytest.mark.parametrize(
    ("policy", "decides"),
    [
        ({"type": "bandit", "slack_factor": 0.1, "delay_evaluation": 5}, "interval 5 on"),
        (
            {"type": "median_stopping", "evaluation_interval": 4, "delay_evaluation": 5},
            "interval 8 on: it stops no such trial; lower `delay_evaluation`",
        ),
        (
            {"type": "truncation_selection", "truncation_percentage": 20, "evaluation_interval": 3},
            "interval 3 on: it stops no such trial; lower `evaluation_interval`",
        ),
        ({"type": "asha", "min_intervals": 3, "max_intervals": 27}, "lower `min_intervals`"),
    ],
)
def test_a_policy_that_comes_too_late_for_a_trial_is_told_once(
    lab: SweepLab, policy: Mapping[str, Any], decides: str
) -> None:
    lab.create(early_termination=policy)
    lab.round()
    lab.log(0, [0.5])
    lab.end(0, 0.4)
    lab.round()
    (notice,) = notices_of(jobs.events(lab.services.db, lab.sweep))
    assert notice.startswith("trial `tuning_0` ended after 2 values of `loss`, and")
    assert decides in notice and notice in _hyperdrive(lab)
    lab.run(_lr)
    assert len(notices_of(jobs.events(lab.services.db, lab.sweep))) == 1


def test_a_policy_that_can_decide_is_not_told_about(lab: SweepLab) -> None:
    lab.create(early_termination={"type": "median_stopping", "delay_evaluation": 2})
    lab.round()
    lab.log(0, [0.5])
    lab.end(0, 0.4)
    lab.run(_lr)
    assert notices_of(jobs.events(lab.services.db, lab.sweep)) == []


def test_canceling_a_sweep_ends_its_trials_and_starts_no_others(lab: SweepLab) -> None:
    lab.create()
    lab.round()
    jobs.cancel(lab.services, support.WORKSPACE, "tuning")
    assert lab.status() is Status.CANCEL_REQUESTED
    lab.round()
    for number in (0, 1):
        assert lab.job(number).status is Status.CANCEL_REQUESTED
        lab.obey_cancel(number)
    lab.round()
    assert lab.status() is Status.CANCELED
    assert len(lab.trials) == 2


def test_a_sweep_that_waits_can_be_canceled(lab: SweepLab) -> None:
    lab.create()
    jobs.cancel(lab.services, support.WORKSPACE, "tuning")
    lab.round()
    assert lab.status() is Status.CANCELED and lab.trials == []


def test_a_sweep_of_a_removed_person_stops_and_makes_no_trial(lab: SweepLab) -> None:
    people.create(lab.services.db, lab.clock, "olga", Role.OWNER, "", "me")
    lab.create()
    lab.round()
    assert len(lab.trials) == 2
    people.remove(lab.services.db, lab.clock, "me")
    stopped = owners.stop_unable(lab.services, "me")
    assert stopped[0] == "default/tuning" and len(stopped) == 3
    for number in (0, 1):
        lab.obey_cancel(number)
    for _ in range(3):
        lab.round()
    assert lab.status() is Status.CANCELED
    assert len(lab.trials) == 2


def test_a_trial_is_not_made_for_a_person_who_was_just_removed(lab: SweepLab) -> None:
    """By a round that began before the removal was noticed."""
    people.create(lab.services.db, lab.clock, "olga", Role.OWNER, "", "me")
    lab.create()
    people.remove(lab.services.db, lab.clock, "me")
    lab.keeper.run_all()
    assert lab.trials == []


def test_a_sweep_ends_when_its_time_is_over(lab: SweepLab) -> None:
    lab.create(limits={"max_total_trials": 4, "max_concurrent_trials": 1, "timeout": 60})
    lab.round()
    lab.clock.advance(61)
    lab.round()
    lab.obey_cancel(0)
    lab.round()
    assert lab.status() is Status.CANCELED and lab.sweep.error is not None
    assert lab.sweep.error.code == "sweep_timeout"


def test_more_trials_can_be_added_to_a_sweep_that_ended(lab: SweepLab) -> None:
    lab.create(name="whole", limits={"max_total_trials": 6, "max_concurrent_trials": 2})
    lab.run(_lr)
    parameters = [dict(trial.parameters) for trial in lab.trials]
    lab.create()
    lab.run(_lr)
    with pytest.raises(Conflict):
        actions.add_trials(lab.services, lab.sweep, 4)
    actions.add_trials(lab.services, lab.sweep, 6)
    assert lab.status() is Status.RUNNING and lab.sweep.ended_at is None
    lab.run(_lr)
    assert lab.status() is Status.COMPLETED
    assert [dict(trial.parameters) for trial in lab.trials] == parameters


def test_archiving_and_deleting_a_sweep_cover_its_trials(lab: SweepLab) -> None:
    lab.create()
    lab.run(_lr)
    jobs.archive(lab.services, support.WORKSPACE, "tuning")
    assert lab.job(3).archived
    jobs.archive(lab.services, support.WORKSPACE, "tuning", archived=False)
    assert not lab.job(3).archived
    plan = deletion.delete(lab.services, support.WORKSPACE, Choice(names=["tuning"]), "me")
    assert sorted(job.name for job in plan.jobs) == ["tuning", *(f"tuning_{n}" for n in range(4))]


def test_a_trial_that_was_deleted_is_still_known(lab: SweepLab) -> None:
    lab.create()
    lab.round()
    lab.end(0, 0.01)
    lab.round()
    deletion.delete(lab.services, support.WORKSPACE, Choice(names=["tuning_0"]), "me")
    lab.run(_lr)
    assert lab.trials[0].values == (0.01,)


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        (
            {"trial": {**SWEEP["trial"], "distribution": {"type": "none"}}},
            ("trial", "distribution"),
        ),
        ({"compute": "nowhere"}, ("compute",)),
        (
            {
                "trial": {**SWEEP["trial"], "code": "snapshot:" + "0" * 64},
            },
            ("trial", "code"),
        ),
        ({"inputs": {"data": {"type": "uri_file", "path": "azureml:none:1"}}}, ("inputs",)),
    ],
)
def test_what_is_wrong_with_the_trial_is_told_at_its_place(
    lab: SweepLab, changes: dict[str, Any], path: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidSpec) as caught:
        lab.create(**changes)
    assert tuple(caught.value.at or ())[: len(path)] == path
    assert jobs.find_by_name(lab.services.db, support.WORKSPACE, "tuning") is None


def test_secrets_of_a_trial_are_hidden(lab: SweepLab) -> None:
    trial = {**SWEEP["trial"], "environment_variables": {"API_TOKEN": "hunter2-hunter2"}}
    lab.create(trial=trial)
    shown = jobs.document(lab.services, support.WORKSPACE, "tuning")
    assert "hunter2" not in str(shown)
    lab.round()
    assert lab.job(0).document["environment_variables"]["API_TOKEN"] == "hunter2-hunter2"


def test_asha_pauses_trials_at_a_rung_and_promotes_the_best(lab: SweepLab) -> None:
    lab.create(
        limits={"max_total_trials": 3, "max_concurrent_trials": 3},
        early_termination={"type": "asha", "max_intervals": 3, "reduction_factor": 3},
    )
    lab.round()
    for number, value in enumerate((0.3, 0.1, 0.2)):
        lab.log(number, [value])
    lab.round()
    for number in range(3):
        lab.obey_cancel(number)
    assert [lab.job(number).status for number in range(3)] == [Status.QUEUED] * 3
    lab.kill()
    lab.round()
    lab.round()
    assert lab.running() == [1] and lab.trials[1].promotions == 1
    lab.end(1, 0.05, 0.04)
    for _ in range(3):
        lab.round()
    assert lab.status() is Status.COMPLETED
    outcomes = [trial.outcome for trial in lab.trials]
    assert outcomes == [Outcome.STOPPED, Outcome.COMPLETED, Outcome.STOPPED]
    assert lab.trials[0].reason.startswith("asha: value 0.3 at interval 1 is number 3 of 3")
    assert lab.job(1).attempt == 2
    rungs = [(r.number, r.interval, r.value, r.decision) for r in lab.rungs]
    assert rungs == [
        (1, 1, 0.1, "promoted"),
        (2, 1, 0.2, "stopped"),
        (0, 1, 0.3, "stopped"),
    ]


def test_a_sweep_without_rungs_has_an_empty_table(lab: SweepLab) -> None:
    lab.create(early_termination={"type": "bandit", "slack_factor": 0.5})
    lab.round()
    assert lab.rungs == []


def test_a_workspaces_recipients_are_told_of_the_sweep_not_of_its_trials(lab: SweepLab) -> None:
    emails = {"email_on": ["JobCompleted"], "emails": ["lab@example.org"]}
    workspaces.update(
        lab.services.db, support.WORKSPACE, {"notification_settings": emails}, lambda stored: None
    )
    lab.create()
    lab.run(_lr)
    with lab.services.db.read() as connection:
        messages = {
            job.name: message_store.count(connection, job.id)
            for job in (lab.sweep, *(lab.job(trial.number) for trial in lab.trials))
        }
    assert messages == {"tuning": 1} | {f"tuning_{number}": 0 for number in range(4)}
