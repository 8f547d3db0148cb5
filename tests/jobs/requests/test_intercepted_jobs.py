"""Which jobs have torch.save intercepted, what their environment needs, what they say of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobs.support import submit
from torchyard.base.errors import InvalidSpec
from torchyard.environments.types import EnvironmentSpec, ImageSpec
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs import actions
from torchyard.jobs.records.job_events import notices_of
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services
from torchyard.jobs.spec import interception, job_spec

ASKED = {"torchyard": {"checkpoint": {"intercept": True}}}
PROPERTIES = {"torchyard.checkpoint.intercept": "true"}
WITH_LAYER = EnvironmentSpec("3.11", (), "linux-x86_64-cpu", layers=("torchyard-train",))


def test_it_is_off_unless_requested(services: Services) -> None:
    job = submit(services)
    assert notices_of(actions.events(services.db, job)) == []
    assert not interception.is_intercepted(job.properties)


def test_the_plan_of_a_job_that_asks_says_so_and_the_job_as_well(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve = services.environments.resolver.resolve

    def with_layer(*arguments: Any) -> EnvironmentSpec:
        return replace(resolve(*arguments), layers=("torchyard-train",))

    monkeypatch.setattr(services.environments.resolver, "resolve", with_layer)
    job = submit(services, **ASKED)
    assert job.properties["torchyard.checkpoint.intercept"] == "true"
    (notice,) = notices_of(actions.events(services.db, job))
    assert notice.startswith("torch.save is intercepted: files below `./outputs` are written")
    executor = FakeExecutor()
    Scheduler(services, executor, "http://127.0.0.1:1").run_round()
    assert executor.launches[0].intercepts_saves


def test_an_environment_without_torchyard_train_is_refused(services: Services) -> None:
    with pytest.raises(
        InvalidSpec, match="needs `torchyard-train`, which the environment"
    ) as error:
        submit(services, **ASKED)
    assert "add `torchyard-train` to the packages" in error.value.hint


def test_what_an_image_holds_is_left_to_the_rank() -> None:
    image = replace(WITH_LAYER, layers=(), image=ImageSpec("docker.io/library/pytorch"))
    assert len(interception.notices(PROPERTIES, image)) == 1
    assert interception.notices({}, image) == []


@pytest.mark.parametrize("written", ["yes", 1, "", "outputs"])
def test_another_value_is_refused_in_place(written: object) -> None:
    job = {"command": "true", "torchyard": {"checkpoint": {"intercept": written}}}
    with pytest.raises(InvalidSpec, match=r"`torchyard\.checkpoint\.intercept` is") as error:
        job_spec.read({**job, "environment": {"pip_requirements": []}})
    assert error.value.hint == "true or false"
