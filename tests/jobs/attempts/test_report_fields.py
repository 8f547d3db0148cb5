"""What workers report, as types."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.base.errors import InvalidInput
from torchyard.jobs.attempts import report_fields
from torchyard.jobs.attempts.worker_events import NodeExited, OtherReported, RankExited, Report
from torchyard.jobs.records.types import JobError


def read(kind: str, body: Any = None) -> Report:
    sent = {"seq": 3, "at": "2026-01-01T00:00:00Z", "kind": kind, "body": body}
    (event,) = report_fields.read_events(0, [sent])
    assert event.seq == 3
    return event.report


def test_a_rank_that_was_killed_failed() -> None:
    killed = read("rank_exited", {"exit_code": None, "signal": 9, "consequence": True})
    assert isinstance(killed, RankExited)
    assert killed.failed and killed.consequence
    ended = read("rank_exited", {"exit_code": 0, "signal": None})
    assert isinstance(ended, RankExited) and not ended.failed


def test_a_node_exits_with_its_error() -> None:
    error = {"code": "hang", "message": "stood still", "details": {"at": "now"}}
    exited = read("node_exited", {"exit_code": 1, "error": error})
    assert exited == NodeExited(1, JobError("hang", "stood still", "", {"at": "now"}))
    assert read("node_exited") == NodeExited(0, None)


def test_an_unknown_kind_is_accepted() -> None:
    assert read("node_started", {"hostname": "h"}) == OtherReported("node_started")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"exit_code": "1"}, "`exit_code` of event 3 must be a number"),
        ({"error": {}}, "the error of event 3 needs `code` and `message`"),
        ({"early_exit": 3}, "`early_exit` of event 3 must be an object"),
        ({"early_exit": {"at": "soon"}}, "`early_exit` of event 3 has no valid time `at`"),
        ("text", "the body of event 3 must be an object"),
    ],
)
def test_a_body_that_is_wrong_is_refused(body: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read("node_exited", body)
    assert refused.value.message == message
