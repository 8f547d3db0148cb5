"""What a saved notebook shows of a job, without a kernel."""

from __future__ import annotations

import base64
import re
from xml.etree import ElementTree

from notebook.recorded_job import RecordedJob
from torchyard.notebook.saved_page import saved_page

HOSTILE = "<script>alert(1)</script>'\"><img src=x onerror=alert(1)>"


def test_it_shows_status_stages_metrics_with_charts_and_the_log() -> None:
    job = RecordedJob(metrics={"loss": 0.25, "lr": 0.1})
    job.points = {"loss": [1.0, 0.5, 0.25], "lr": [0.1]}
    job.logs = {"user_logs/std_log.txt": b"epoch 1\n\x1b[31mepoch 2\x1b[0m\n 10%\r100%\n"}
    html = saved_page(job.view(), "abc")
    assert "</span> Running" in html and "<p>Running</p>" in html
    assert "<pre>epoch 1\nepoch 2\n100%</pre>" in html
    (picture,) = re.findall(r"data:image/svg\+xml;base64,([\w+/=]+)", html)
    svg = ElementTree.fromstring(base64.b64decode(picture))
    points = svg[0].attrib["points"].split()
    assert points[0] == "3.0,3.0" and points[-1] == "257.0,53.0", "the largest is at the top"
    assert "from 1 to 0.25" in html and ">0.25<" in html and ">0.1<" in html


def test_lines_that_the_server_reduced_are_drawn_through_the_middle_of_their_columns() -> None:
    job = RecordedJob(metrics={"loss": 0.0})
    job.points = {"loss": [0.0]}
    view = job.view()
    view.charts["lines"][0] |= {"points": None, "columns": [[0, 0.0, 2.0], [9, "NaN", 4.0]]}
    assert "from 1 to 4" in saved_page(view, "abc")


def test_hostile_text_stays_text() -> None:
    job = RecordedJob(
        display_name=HOSTILE,
        waiting=HOSTILE,
        metrics={HOSTILE: 1.0},
        error={"code": HOSTILE, "message": HOSTILE, "hint": HOSTILE},
        stages=[{"name": HOSTILE, "start": HOSTILE, "end": None, "duration_s": HOSTILE}],
    )
    job.points = {HOSTILE: [1.0, 2.0]}
    job.logs = {"user_logs/std_log.txt": HOSTILE.encode()}
    html = saved_page(job.view(), "abc")
    assert "<script" not in html and "<img src" not in html and "'\"" not in html
    assert html.count("&lt;script&gt;") >= 5
