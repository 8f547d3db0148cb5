"""Charts of values that are hard to draw: the largest floats, lone points, NaN."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from end_to_end.yard_under_test import Yard
from web_page.browsing import ask, token_of, until
from web_page.page_list import WORKSPACE

pytestmark = [pytest.mark.web_page, pytest.mark.timeout(600)]

VALUES: dict[str, list[float | str]] = {
    "huge": [1e300, 1.7e308, -1.7e308],
    "lone": [1.0, "NaN", 2.0, "NaN", 3.0],
    "one": [5.0],
    "tiny": [5e-324, 1e-300, 1e-10],
}
# How much of a chart has the colour of its line.
DRAWN = """
[...document.querySelectorAll("section.metric")].map((metric) => {
    const canvas = metric.querySelector("canvas");
    if (!canvas) return [metric.ariaLabel, 0];
    const probe = document.createElement("canvas").getContext("2d");
    probe.fillStyle = getComputedStyle(metric).getPropertyValue("--series-1").trim();
    probe.fillRect(0, 0, 1, 1);
    const [red, green, blue] = probe.getImageData(0, 0, 1, 1).data;
    const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let drawn = 0;
    for (let at = 0; at < data.length; at += 4)
        if (data[at] === red && data[at + 1] === green && data[at + 2] === blue) drawn += 1;
    return [metric.ariaLabel, drawn];
})
"""
ALL_DRAWN = f"""
(() => {{
    const drawn = {DRAWN.strip()};
    return drawn.length === {len(VALUES)} && drawn.every(([, pixels]) => pixels > 8);
}})()
"""
NAN = "some values are NaN or infinite and are not drawn"
NEGATIVE = "some values are 0 or negative and are not drawn on a logarithmic axis"


def logged(server: str, token: str) -> str:
    """A run that logged the values by MLflow's protocol."""
    api = "/mlflow/default/api/2.0/mlflow/runs"
    now = int(time.time() * 1000)
    made = ask(server, token, f"{api}/create", {"experiment_id": "0", "start_time": now})
    name: str = json.loads(made)["run"]["info"]["run_id"]
    points = [
        {"key": key, "value": value, "timestamp": now + step, "step": step}
        for key, values in VALUES.items()
        for step, value in enumerate(values)
    ]
    ask(server, token, f"{api}/log-batch", {"run_id": name, "metrics": points})
    ended = {"run_id": name, "status": "FINISHED", "end_time": now + 9}
    ask(server, token, f"{api}/update", ended)
    return name


def test_every_finite_value_is_drawn_and_what_is_left_out_is_said(
    browse: Any, yard: Yard, server: str
) -> None:
    name = logged(server, token_of(yard))
    page = browse(f"{WORKSPACE}/jobs/{name}?tab=metrics", height=2000)
    page.get_by_role("figure").nth(len(VALUES) - 1).wait_for()
    assert until(page, ALL_DRAWN), page.evaluate(DRAWN)
    page.get_by_role("region", name="lone", exact=True).get_by_text(NAN).wait_for()
    assert page.get_by_text(NAN).count() == 1
    huge = page.get_by_role("region", name="huge", exact=True)
    assert "last-1.700e+308" in re.sub(r"\s", "", huge.inner_text())

    page = browse(f"{WORKSPACE}/jobs/{name}?tab=metrics&log=1", height=2000)
    page.get_by_role("region", name="huge", exact=True).get_by_text(NEGATIVE).wait_for()
    assert page.get_by_text(NEGATIVE).count() == 1
    assert until(page, ALL_DRAWN), page.evaluate(DRAWN)
