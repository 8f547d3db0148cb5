"""Following a job in the background."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from uuid import uuid4

import pytest

from notebook.recorded_job import RecordedJob
from torchyard.base.errors import NotFound, Unreachable
from torchyard.notebook.follower import Follower, follow
from torchyard.notebook.view import View

RUNNING = RecordedJob().view()
ENDED = replace(RUNNING, job={**RUNNING.job, "status": "Completed"})
Step = View | Exception


def script(*steps: Step) -> Callable[[], View]:
    """Reads of a job, one after the other; one more than there are fails the test."""
    rest = list(steps)

    def read() -> View:
        step = rest.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    return read


def followed(*steps: Step) -> tuple[list[View], list[float]]:
    """What a listener was has_ended, and the pauses between the reads."""
    views: list[View] = []
    pauses: list[float] = []
    follower = Follower(script(*steps), RUNNING, pauses.append)
    follower.listen(views.append)
    follower.run()
    assert follower.is_done
    return views, pauses


def test_a_job_is_read_until_it_has_ended() -> None:
    learning = replace(RUNNING, metrics={"loss": 0.5})
    views, pauses = followed(RUNNING, learning, learning, ENDED)
    assert views == [RUNNING, learning, ENDED], "only what is new is has_ended"
    assert pauses == [1.0, 1.5, 1.0, 1.5], "a job without news is read less often"


def test_a_restarting_server_is_waited_for() -> None:
    away = Unreachable("no torchyard server answers at `http://x`")
    views, _ = followed(away, away, RUNNING, ENDED)
    assert [view.note for view in views] == ["", f"Not up to date: {away}.", "", ""]
    assert views[1].job == RUNNING.job, "what was last seen stays"


def test_a_pause_never_grows_past_five_seconds() -> None:
    _, pauses = followed(*[RUNNING] * 20, ENDED)
    assert pauses[-1] == max(pauses) == 5.0


@pytest.mark.parametrize("error", [NotFound("job `x` does not exist"), ZeroDivisionError("a bug")])
def test_what_waiting_does_not_mend_ends_it(error: Exception) -> None:
    views, _ = followed(error)
    assert views[-1].note.startswith("No longer refreshed: ") and str(error) in views[-1].note


def test_a_listener_that_fails_disturbs_no_other() -> None:
    views: list[View] = []
    follower = Follower(script(ENDED), RUNNING, lambda pause_s: None)
    follower.listen(lambda view: 1 / 0)  # type: ignore[arg-type]
    follower.listen(views.append)
    follower.run()
    assert views == [RUNNING, ENDED]


def test_a_job_in_several_cells_is_read_once(capfd: pytest.CaptureFixture[str]) -> None:
    may_end = threading.Event()
    has_ended = threading.Event()

    def wait(pause_s: float) -> None:
        may_end.wait(60)

    key = uuid4().hex
    first = follow(key, script(ENDED), RUNNING, wait)
    assert follow(key, script(), RUNNING, wait) is first
    first.listen(lambda view: has_ended.set() if view.has_ended else None)
    thread = next(t for t in threading.enumerate() if t.name == "torchyard follows brave-otter")
    assert thread.daemon, "a kernel that ends does not wait for it"
    may_end.set()
    assert has_ended.wait(60)
    thread.join(60)
    assert not thread.is_alive()
    assert follow(key, script(), ENDED, wait) is not first
    assert capfd.readouterr() == ("", "")


def test_a_job_that_has_ended_needs_no_thread() -> None:
    before = threading.active_count()
    assert follow(uuid4().hex, script(), ENDED, lambda pause_s: None).is_done
    assert threading.active_count() == before
