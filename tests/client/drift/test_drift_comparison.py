"""Collected events against training data, with a server that is not there."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from torchyard.base.errors import InvalidInput, NotFound
from torchyard.cli.endpoints import drift_page
from torchyard.client.drift.columns import Thresholds
from torchyard.client.drift.comparison import DriftOptions, DriftReport, compare
from torchyard.client.endpoints.online_deployments import OnlineDeployments

DEPLOYMENT = {
    "name": "blue",
    "endpoint_name": "houses",
    "data_collector": {"collections": {"model_inputs": {"enabled": "true"}, "request": None}},
    "model": "azureml:net:3",
}
SIGNATURE = {"inputs": [{"name": "area", "shape": None}, {"name": "city", "shape": None}]}


class FakeFile:
    def __init__(self, path: str) -> None:
        self.path = path


class FakeData:
    """Assets as folders below one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fetched: list[str] = []

    def _of(self, name: str) -> Path:
        if not (self.folder / name).is_dir():
            raise NotFound(f"data `{name}` does not exist")
        return self.folder / name

    def files(self, name: str, version: str) -> list[FakeFile]:
        top = self._of(name)
        return [FakeFile(str(each.relative_to(top))) for each in sorted(top.rglob("*.*"))]

    def fetch(
        self, name: str, version: str, listed: Sequence[FakeFile], folder: Path
    ) -> list[Path]:
        targets = []
        for file in listed:
            self.fetched.append(file.path)
            targets.append(folder / file.path)
            targets[-1].parent.mkdir(parents=True, exist_ok=True)
            targets[-1].write_bytes((self._of(name) / file.path).read_bytes())
        return targets

    def download(self, name: str, version: str, folder: Path) -> list[Path]:
        return self.fetch(name, version, self.files(name, version), folder / name)


class FakeTransport:
    def get(self, path: str) -> Any:
        assert path == "/v1/workspaces/default/models/net/versions/3"
        return {"signature": SIGNATURE}


class Site:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = FakeData(folder / "assets")
        numbers = random.Random(7)
        lines = ["area,city,price"]
        lines += [f"{numbers.gauss(4, 1):.3f},{numbers.choice('abc')},1" for _ in range(2000)]
        (folder / "train.csv").write_text("\n".join(lines))
        training = folder / "assets" / "houses-train"
        training.mkdir(parents=True)
        (training / "train.csv").write_text("\n".join(lines))

    def collect(
        self, payloads: Sequence[Any], at: datetime | None = None, collection: str = "model_inputs"
    ) -> None:
        at = at or datetime.now(timezone.utc)
        name = f"houses-blue-{collection}"
        file = self.folder / "assets" / name / at.strftime("%Y/%m/%d/%H.jsonl")
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file, "a") as opened:
            for payload in payloads:
                event = {"specversion": "1.0", "time": at.isoformat(), "data": payload}
                opened.write(json.dumps(event) + "\n")

    def compare(self, data: str | Path = "", document: Any = None, **options: Any) -> DriftReport:
        return compare(
            FakeTransport(),  # type: ignore[arg-type]
            self.data,  # type: ignore[arg-type]
            "/v1/workspaces/default",
            document or DEPLOYMENT,
            data or self.folder / "train.csv",
            DriftOptions(**options),
        )


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def shifted(count: int, seed: int = 1) -> list[list[Any]]:
    numbers = random.Random(seed)
    return [[numbers.gauss(6, 1), numbers.choice("abc")] for _ in range(count)]


def test_the_shifted_column_is_named_and_the_other_is_not(site: Site) -> None:
    site.collect([{"data": [row]} for row in shifted(200)])
    report = site.compare("houses-train:1")
    assert report.drifted == ("area",)
    assert [(each.column, each.result) for each in report.columns] == [
        ("area", "drifted"), ("city", "stable"),
    ]  # fmt: skip
    assert report.left_out == {"price": "collected"}
    assert (report.collected.rows, report.reference.rows, report.notices) == (200, 2000, ())
    assert report.collected.data == "houses-blue-model_inputs:latest"
    document = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert document["drifted"] == ["area"] and document["columns"][0]["statistics"]["psi"] > 1
    page = drift_page.text_of(report)
    assert "1 of 2 columns have drifted: area" in page and "not collected: price" in page


def test_only_the_hours_since_are_read(site: Site) -> None:
    now = datetime.now(timezone.utc)
    site.collect([{"area": 1.0, "city": "a"}] * 100, now - timedelta(days=3))
    site.collect([{"area": row[0], "city": row[1]} for row in shifted(40)], now)
    assert site.compare(since="24h").collected.rows == 40
    assert len(site.data.fetched) == 1
    assert site.compare().collected.rows == 140


def test_lists_are_named_by_names_and_else_refused_with_their_width(site: Site) -> None:
    site.collect([{"data": [[1, 2, *row]]} for row in shifted(50)])
    with pytest.raises(InvalidInput) as raised:
        site.compare(document={**DEPLOYMENT, "model": {"path": "x"}})
    assert "lists of 4 values, and the training data has 3 columns" in raised.value.hint


def test_names_are_taken_where_they_are_given(site: Site) -> None:
    site.collect([{"data": [[1, *row]]} for row in shifted(50)])
    report = site.compare(names=["id", "area", "city"])
    assert report.drifted == ("area",) and report.left_out["id"] == "reference"


def test_too_few_rows_are_an_error(site: Site) -> None:
    site.collect([{"area": 1.0}] * 29)
    with pytest.raises(InvalidInput, match="29 rows, and at least 30") as raised:
        site.compare()
    assert raised.value.code == "too_few_rows" and raised.value.hint == "send more requests"
    (site.folder / "few.csv").write_text("area\n1\n")
    with pytest.raises(InvalidInput, match="1 rows"):
        site.compare(site.folder / "few.csv")


def test_a_large_side_is_sampled_and_it_is_said(site: Site) -> None:
    site.collect([{"area": row[0]} for row in shifted(300)])
    report = site.compare(max_rows=100, seed=5)
    assert (report.collected.rows, report.collected.used, report.reference.used) == (300, 100, 100)
    assert report.notices[0] == (
        "100 of 2000 training rows were compared, a random sample with seed 5"
    )
    assert site.compare(max_rows=100, seed=5) == report


def test_foreign_lines_are_counted_and_left_out(site: Site) -> None:
    site.collect([{"area": row[0]} for row in shifted(50)] + ["text", 5, None, [[1]]])
    (file,) = (site.folder / "assets").rglob("*.jsonl")
    with open(file, "a") as opened:
        opened.write('{"time": "x"}\n[]\n{"half": \n' + "[" * 5000 + "\n")
        at = datetime.now(timezone.utc).isoformat()
        opened.write(json.dumps({"time": at, "truncated": True}) + "\n")
    report = site.compare()
    assert report.collected.rows == 50 and report.drifted == ("area",)
    assert report.notices == (
        "4 of 55 collected requests hold no table with these columns",
        "1 of 55 collected requests were too large to be kept with their content",
        "4 lines of the collected data could not be read",
    )


def test_columns_are_chosen_by_name(site: Site) -> None:
    site.collect([dict(zip(("area", "city"), row, strict=True)) for row in shifted(50)])
    assert [each.column for each in site.compare(columns=["city"]).columns] == ["city"]
    with pytest.raises(InvalidInput) as raised:
        site.compare(columns=["citty"])
    assert raised.value.hint == "did you mean `city`?"
    with pytest.raises(InvalidInput, match="`price` is not in the collected data"):
        site.compare(columns=["price"])


def test_what_is_not_collected_is_refused(site: Site) -> None:
    site.collect([{"area": 1}])
    with pytest.raises(InvalidInput) as raised:
        site.compare(document={**DEPLOYMENT, "data_collector": None})
    assert raised.value.code == "nothing_collected"
    with pytest.raises(InvalidInput, match="collects no `model_outputs`"):
        site.compare(collection="model_outputs")
    with pytest.raises(NotFound, match="absent"):
        site.compare("absent")
    with pytest.raises(NotFound, match="label"):
        site.compare("houses-train@old")
    with pytest.raises(InvalidInput, match="neither a file here nor a data asset"):
        site.compare("./absent.csv")


def test_data_under_a_name_of_its_own_is_found(site: Site) -> None:
    site.collect([{"area": row[0]} for row in shifted(50)])
    (site.folder / "assets" / "houses-blue-model_inputs").rename(site.folder / "assets" / "mine")
    collections = {"model_inputs": {"data": "azureml:mine:4"}}
    document = {**DEPLOYMENT, "data_collector": {"collections": collections}}
    assert site.compare(document=document).collected.data == "mine:4"


def test_names_can_not_control_the_terminal(site: Site) -> None:
    (site.folder / "t.csv").write_text("\x1b[2J\n" + "a\n" * 50)
    site.collect([{"\x1b[2J": "\x1b[31m"}] * 50)
    report = site.compare(site.folder / "t.csv", thresholds=Thresholds())
    assert len(report.drifted) == 1 and "\x1b" not in drift_page.text_of(report)


def test_without_scipy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    transport: Any = FakeTransport()
    snapshots: Any = None
    deployments = OnlineDeployments(transport, "/v1/workspaces/default", snapshots)
    with pytest.raises(InvalidInput) as raised:
        deployments.drift("houses", "blue", "train.csv")
    assert (raised.value.code, raised.value.exit_code) == ("extra_missing", 2)
    assert "pip install 'torchyard[drift]'" in raised.value.hint


def test_thresholds_are_read() -> None:
    assert drift_page.read_thresholds(["psi=0.5", "p-value=0.1"]) == {"psi": 0.5, "p_value": 0.1}
    with pytest.raises(InvalidInput, match="not a threshold"):
        drift_page.read_thresholds(["psi"])
