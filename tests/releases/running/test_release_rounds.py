"""A release goes through its gates, or is stopped by one; a kill stops nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from environments import wheels
from jobs import support
from releases.release_lab import NAME, ONLY, ReleaseLab, entry
from torchyard.base.clock import to_text
from torchyard.base.errors import Conflict, InvalidInput
from torchyard.environments import assets, copying
from torchyard.jobs import actions as jobs
from torchyard.jobs.cleanup import references
from torchyard.releases import actions
from torchyard.releases.records.types import VALIDATION
from torchyard.releases.running import keeper as keepers
from torchyard.workspaces import people
from torchyard.workspaces.types import Role


def ready(lab: ReleaseLab, **changes: Any) -> None:
    """A built version, advisories, and a newer package on the index."""
    lab.register(**changes)
    lab.advise()
    wheels.put(lab.wheels, "alpha", "2.0", requires=("beta",))
    wheels.put(lab.wheels, "alpha", "3.0")


@pytest.mark.slow
def test_a_release_registers_what_its_limits_allow(lab: ReleaseLab) -> None:
    ready(lab)
    lab.release()
    ended = lab.run()
    assert ended["status"] == "Completed", ended["error"]
    assert ended["version"] == "2"
    assert lab.versions == ["2", "1"]
    assert ended["changelog"] == "alpha: 1.0 → 2.0"
    assert set(lab.gates.values()) == {"passed"}
    asset = assets.get(lab.services.db, support.WORKSPACE, NAME)
    pinned = asset.definition["conda_file"]["dependencies"][1]["pip"]
    assert {"alpha==2.0", "beta==1.0"} <= set(pinned)


@pytest.mark.slow
def test_a_version_keeps_its_wheels_until_they_are_given_up(lab: ReleaseLab) -> None:
    ready(lab)
    lab.release()
    assert "kept wheels: 2, " in lab.run()["gates"][-1]["message"]
    db = lab.services.db

    def named() -> list[str]:
        with db.read() as connection:
            by = references.snapshots(connection)
        return [user for users in by.values() for user in users if "environment" in user]

    assert named() == ["environment asset `vision`"]
    assert actions.forget_wheels(db, support.WORKSPACE, NAME, "me")["versions"] == []
    assets.archive(db, support.WORKSPACE, NAME, "2", user="me")
    dropped = actions.forget_wheels(db, support.WORKSPACE, NAME, "me")
    assert dropped["versions"] == ["2"] and dropped["size_bytes"] > 0
    assert named() == []


@pytest.mark.slow
def test_the_next_release_begins_from_what_was_requested(lab: ReleaseLab) -> None:
    ready(lab)
    lab.release()
    lab.run()
    wheels.put(lab.wheels, "beta", "1.5")
    lab.release()
    assert lab.run()["changelog"] == "beta: 1.0 → 1.5"
    assert lab.versions == ["3", "2", "1"]


def test_nothing_moved_and_nothing_is_registered(lab: ReleaseLab) -> None:
    lab.register()
    lab.advise()
    lab.release()
    ended = lab.run()
    assert ended["status"] == "Completed"
    assert lab.versions == ["1"]
    assert lab.gates["register"] == "skipped"
    assert ended["gates"][-1]["message"] == "nothing moved since vision:1"
    assert not lab.children()


@pytest.mark.slow
def test_of_what_is_pinned_it_says_that_nothing_can_move(lab: ReleaseLab) -> None:
    lab.register("alpha==1.0", "beta==1.0")
    lab.advise()
    wheels.put(lab.wheels, "alpha", "2.0")
    lab.release()
    ended = lab.run()
    assert ended["status"] == "Completed"
    message = "nothing moved since vision:1: each package is listed in one version"
    assert ended["gates"][-1]["message"] == message


@pytest.mark.slow
def test_a_clone_of_a_released_version_moves_as_the_version_does(lab: ReleaseLab) -> None:
    ready(lab)
    lab.release()
    lab.run()
    environments = lab.services.environments
    source = copying.resolve_reference(environments, support.WORKSPACE, NAME)
    copying.clone(environments, lab.clock, support.WORKSPACE, source, "fork", "me")
    environments.builds.run(environments.resolver.resolve("fork", support.WORKSPACE))
    wheels.put(lab.wheels, "alpha", "2.5", requires=("beta",))
    lab.release(name="fork")
    ended = lab.run()
    assert ended["changelog"] == "alpha: 2.0 → 2.5"
    assert ended["version"] == "2"


@pytest.mark.slow
def test_an_old_vulnerability_stops_a_release_of_what_did_not_move(lab: ReleaseLab) -> None:
    lab.register()
    published = to_text(lab.clock.now() - timedelta(days=31))
    lab.advise(entry("CVE-1", "alpha", published))
    lab.release()
    ended = lab.run()
    assert ended["status"] == "Failed"
    assert "gate `audit`: alpha 1.0: CVE-1 (31 days old, fixed in 3)" in ended["error"]["message"]


def test_a_vulnerable_package_stops_a_release(lab: ReleaseLab) -> None:
    ready(lab)
    lab.advise(entry("CVE-1", "alpha", to_text(lab.clock.now() - timedelta(days=40))))
    lab.release()
    ended = lab.run()
    assert ended["status"] == "Failed"
    assert lab.gates == {
        "resolve": "passed", "build": "passed", "label": "passed", "audit": "failed",
    }  # fmt: skip
    assert lab.versions == ["1"]
    assert not lab.children()


@pytest.mark.slow
def test_an_exception_lets_it_pass_and_is_shown(lab: ReleaseLab) -> None:
    ready(lab)
    lab.advise(entry("CVE-1", "alpha", to_text(lab.clock.now() - timedelta(days=40))))
    day = (lab.clock.now() + timedelta(days=9)).date().isoformat()
    lab.release(exceptions=[{"id": "CVE-1", "reason": "not reachable", "review_by": day}])
    ended = lab.run()
    assert ended["status"] == "Completed", ended["error"]
    [finding] = ended["audit"]["findings"]
    assert finding["status"] == "excused"
    assert finding["exception"]["reason"] == "not reachable"


@pytest.mark.slow
def test_a_release_says_what_it_mends_and_how_late(lab: ReleaseLab) -> None:
    ready(lab)
    published = to_text(lab.clock.now() - timedelta(days=12))
    versions = {"package": {"ecosystem": "PyPI", "name": "alpha"}, "versions": ["1.0"]}
    lab.advise(entry("CVE-1", "alpha", published, affected=[versions]))
    lab.release()
    ended = lab.run()
    assert ended["status"] == "Completed", ended["error"]
    assert ended["audit"]["mended"] == [
        {"package": "alpha", "version": "1.0", "id": "CVE-1", "days": 12}
    ]
    [gate] = [each for each in ended["gates"] if each["name"] == "audit"]
    assert gate["message"].endswith("1 mended, 12 days after publication")


@pytest.mark.slow
def test_old_advisories_stop_a_release(lab: ReleaseLab) -> None:
    ready(lab)
    lab.clock.advance(31 * 86400)
    lab.release()
    assert "the advisories are 31 days old" in lab.run()["error"]["message"]


@pytest.mark.slow
def test_a_wrong_label_stops_a_release(lab: ReleaseLab) -> None:
    ready(lab, tags={"alpha": "1.0"})
    lab.release()
    ended = lab.run()
    message = ended["error"]["message"]
    assert "gate `label`: tag `alpha` says 1.0, and the build holds 2.0" in message
    assert lab.versions == ["1"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "difference"),
    [
        ({"python": "3.6.1"}, "Python is 3.6.1, and the label says "),
        ({"machine": "aarch64"}, "the machine is aarch64, and the label says x86_64"),
        ({"packages": {"alpha": "2.0"}}, "beta 1.0 is in the label and not installed"),
    ],
)
def test_an_environment_that_answers_something_else_stops_a_release(
    lab: ReleaseLab, answer: dict[str, Any], difference: str
) -> None:
    ready(lab)
    lab.wrong_answer = answer
    lab.release()
    ended = lab.run()
    assert ended["status"] == "Failed"
    assert f"gate `validate`: wrong label: {difference}" in ended["error"]["message"]
    assert lab.versions == ["1"]
    # The disk says what the lock says: only Python itself could tell.
    assert lab.gates["label"] == "passed"


@pytest.mark.slow
def test_a_validation_without_an_answer_fails(lab: ReleaseLab) -> None:
    lab.register()
    lab.silent = True
    made = actions.create(
        lab.services, VALIDATION, support.WORKSPACE, NAME, {"only": ONLY}, support.ME
    )
    lab.job = made["job"]
    assert "no rank answered what the environment holds" in lab.run()["error"]["message"]


@pytest.mark.slow
def test_a_workload_that_fails_stops_a_release(lab: ReleaseLab) -> None:
    ready(lab)
    lab.release()
    ended = lab.run(failing={"requested-imports": "accuracy is 0.41, below 0.95"})
    assert ended["status"] == "Failed"
    assert "gate `validate`: requested-imports: accuracy is 0.41" in ended["error"]["message"]
    assert lab.versions == ["1"]


@pytest.mark.slow
def test_a_workload_that_passed_before_may_not_be_skipped(lab: ReleaseLab) -> None:
    ready(lab)
    lab.release()
    lab.run()
    wheels.put(lab.wheels, "beta", "2.0")
    lab.release()
    ended = lab.run(failing={"requested-imports": "-`alpha` is not in the environment"})
    assert "requested-imports passed with" in ended["error"]["message"]
    assert lab.versions == ["2", "1"]


@pytest.mark.slow
def test_a_job_without_results_fails_every_workload(lab: ReleaseLab) -> None:
    ready(lab)
    lab.release()
    for _ in range(100):
        lab.round()
        if any(child.status.value == "Running" for child in lab.children()):
            break
        for child in lab.children():
            if child.status.value == "Starting":
                worker = support.Worker(lab.services, support.attempt_of(lab.services, child))
                worker.tell("node_started", hostname="h", pid=1, addresses=[])
                worker.fails(1)
        if lab.document["status"] == "Failed":
            break
    assert "without a result of it" in lab.document["error"]["message"]


@pytest.mark.slow
def test_a_package_that_can_not_be_built_stops_a_release(lab: ReleaseLab) -> None:
    ready(lab)
    for file in lab.wheels.glob("beta-*"):
        file.unlink()
    lab.release()
    ended = lab.run()
    assert ended["status"] == "Failed"
    assert "gate `resolve`" in ended["error"]["message"]


@pytest.mark.slow
def test_a_dry_run_registers_nothing(lab: ReleaseLab) -> None:
    ready(lab)
    lab.release(dry_run=True)
    ended = lab.run()
    assert ended["status"] == "Completed"
    assert ended["report"]["passed"] == 2
    assert lab.versions == ["1"]


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_a_killed_server_goes_on_from_the_last_gate(lab: ReleaseLab, rounds: int) -> None:
    ready(lab)
    lab.release()
    for _ in range(rounds):
        lab.round()
        lab.kill()
    ended = lab.run()
    assert ended["status"] == "Completed", ended["error"]
    assert len(ended["gates"]) == 6
    assert lab.versions == ["2", "1"]
    assert len(lab.children()) == 1


@pytest.mark.slow
def test_a_release_that_was_overtaken_registers_nothing(lab: ReleaseLab) -> None:
    ready(lab)
    lab.release()
    lab.round()
    lab.register("beta")
    ended = lab.run()
    assert "the newest version is `vision:2` now" in ended["error"]["message"]
    assert lab.versions == ["2", "1"]


@pytest.mark.slow
def test_one_release_of_an_environment_at_a_time(lab: ReleaseLab) -> None:
    ready(lab)
    first = lab.release()
    with pytest.raises(Conflict, match=first["job"]):
        lab.release()


@pytest.mark.slow
def test_canceling_a_release_cancels_its_jobs(lab: ReleaseLab) -> None:
    ready(lab)
    lab.release()
    for _ in range(50):
        lab.round()
        if lab.children():
            break
    jobs.cancel(lab.services, support.WORKSPACE, lab.job)
    for _ in range(5):
        lab.round()
        for child in lab.children():
            if not child.status.ended:
                worker = support.Worker(lab.services, support.attempt_of(lab.services, child))
                worker.tell("node_started", hostname="h", pid=1, addresses=[])
                error = {"code": "canceled", "message": "stopped"}
                worker.tell("node_exited", exit_code=-15, error=error)
    assert lab.document["status"] == "Canceled"
    assert lab.versions == ["1"]


@pytest.mark.slow
def test_old_versions_stay_usable_and_archived_ones_still_run(lab: ReleaseLab) -> None:
    ready(lab)
    lab.release()
    lab.run()
    assets.archive(lab.services.db, support.WORKSPACE, NAME, "1", user="me")
    listed = assets.list_in(lab.services.db, support.WORKSPACE, NAME)
    assert [asset.version for asset in listed] == ["2"]
    job = support.submit(lab.services, environment=f"azureml:{NAME}:1")
    assert job.document["environment"] == f"azureml:{NAME}:1"


@pytest.mark.slow
def test_a_validation_ends_with_its_report(lab: ReleaseLab) -> None:
    lab.register()
    made = actions.create(
        lab.services, VALIDATION, support.WORKSPACE, NAME,
        {"only": ["interpreter", "requested-imports"]}, support.ME,
    )  # fmt: skip
    lab.job = made["job"]
    ended = lab.run()
    assert ended["status"] == "Completed", ended["error"]
    assert ended["report"]["environment"] == "vision:1"
    assert len(ended["report"]["lock_sha256"]) == 64
    assert ended["report"]["hardware"][0]["cpu"] == "a processor"
    [child] = lab.children()
    assert child.experiment_name == "validation-vision"


@pytest.mark.slow
def test_a_schedule_releases_once_for_all_that_it_missed(lab: ReleaseLab) -> None:
    ready(lab)
    document = {"every_s": 14 * 86400, "only": ["interpreter", "requested-imports"]}
    made = actions.schedule(lab.services, support.WORKSPACE, NAME, document, support.ME)
    lab.clock.advance(40 * 86400)
    lab.advise(entry("PYSEC-9", "other", "2020-01-01T00:00:00Z"))
    lab.keeper.begin_scheduled()
    lab.keeper.begin_scheduled()
    [schedule] = actions.schedules(lab.services.db, support.WORKSPACE)
    assert schedule["next_at"] > made["next_at"]
    [begun] = actions.list_in(lab.services.db, support.WORKSPACE, NAME)
    assert begun["job"] == schedule["last_job"]
    lab.job = begun["job"]
    assert lab.run()["version"] == "2"


@pytest.mark.slow
def test_a_schedule_of_a_removed_person_waits_and_then_is_due_once(lab: ReleaseLab) -> None:
    people.create(lab.services.db, lab.clock, "olga", Role.OWNER, "", "me")
    lab.register()
    actions.schedule(lab.services, support.WORKSPACE, NAME, {"every_s": 86400}, support.ME)
    people.remove(lab.services.db, lab.clock, "me")
    lab.clock.advance(10 * 86400)
    lab.keeper.begin_scheduled()
    assert actions.list_in(lab.services.db, support.WORKSPACE, NAME) == []
    people.create(lab.services.db, lab.clock, "me", Role.DATA_SCIENTIST, support.WORKSPACE, "olga")
    lab.keeper.begin_scheduled()
    lab.keeper.begin_scheduled()
    assert len(actions.list_in(lab.services.db, support.WORKSPACE, NAME)) == 1


def test_a_schedule_goes_on_while_a_release_can_not_begin(lab: ReleaseLab) -> None:
    ready(lab)
    document = {"every_s": 3600, "only": ["interpreter"]}
    actions.schedule(lab.services, support.WORKSPACE, NAME, document, support.ME)
    lab.release()
    lab.clock.advance(3601)
    keeper = keepers.Keeper(lab.services)
    keeper.begin_scheduled()
    keeper.stop()
    [schedule] = actions.schedules(lab.services.db, support.WORKSPACE)
    assert schedule["last_job"] == ""
    assert len(actions.list_in(lab.services.db, support.WORKSPACE, NAME)) == 1


@pytest.mark.slow
def test_the_audit_of_what_was_never_built_says_so(lab: ReleaseLab) -> None:
    lab.advise()
    with pytest.raises(InvalidInput, match="never built"):
        actions.audit(lab.services, support.WORKSPACE, "sklearn-1.5", {})
