"""`yard job metrics`, `compare` and `delete` against the real server."""

from __future__ import annotations

import csv
import json
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from azureml.azure_server import WORKSPACE
from cli.conftest import Answer, Yard
from cli.real_server import RealServer
from eventually import eventually
from postgres_server import NewDatabase
from torchyard import Client
from torchyard.cli.terminal import plots

ODD = 'val/acc @5 % "größte" -x'


class Runs:
    """Runs that a tracking client made; `status` FINISHED or RUNNING."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def __call__(
        self,
        metrics: dict[str, list[float]],
        params: dict[str, str] | None = None,
        experiment: str = "digits",
        status: str = "FINISHED",
        parent: str = "",
    ) -> str:
        call = self.client.transport.post
        api = "/mlflow/default/api/2.0/mlflow"
        table = [row for row in self.client.experiments.list() if row.name == experiment]
        number = (
            table[0].id
            if table
            else call(f"{api}/experiments/create", {"name": experiment})["experiment_id"]
        )
        tags = [{"key": "mlflow.parentRunId", "value": parent}] if parent else []
        made = call(f"{api}/runs/create", {"experiment_id": number, "start_time": 1, "tags": tags})
        name: str = made["run"]["info"]["run_id"]
        points = [
            {"key": key, "value": _number(value), "timestamp": 1000 + 60_000 * step, "step": step}
            for key, values in metrics.items()
            for step, value in enumerate(values)
        ]
        for at in range(0, len(points), 1000):
            call(f"{api}/runs/log-batch", {"run_id": name, "metrics": points[at : at + 1000]})
        rows = [{"key": key, "value": value} for key, value in (params or {}).items()]
        call(f"{api}/runs/log-batch", {"run_id": name, "params": rows})
        if status != "RUNNING":
            call(f"{api}/runs/update", {"run_id": name, "status": status, "end_time": 2000})
        return name


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else "NaN" if value != value else "Infinity"


@pytest.fixture(scope="module")
def real(
    new_database: NewDatabase, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealServer]:
    home = tmp_path_factory.mktemp("server")
    server = RealServer(home, database=new_database(home))
    yield server
    server.stop()


@pytest.fixture
def ask(real: RealServer, yard: Yard, monkeypatch: pytest.MonkeyPatch) -> Yard:
    monkeypatch.setenv("TORCHYARD_URL", real.url)
    monkeypatch.setenv("TORCHYARD_TOKEN", real.token)
    monkeypatch.setenv("NO_COLOR", "1")
    return yard


@pytest.fixture
def runs(real: RealServer) -> Iterator[Runs]:
    with real.client() as client:
        yield Runs(client)


def rows(answer: Answer) -> list[list[str]]:
    return [re.split(r"\s{2,}", line) for line in answer.text.splitlines()]


def test_the_table_of_metrics(ask: Yard, runs: Runs) -> None:
    name = runs({"loss": [3.0, 1.0, 2.0], ODD: [math.nan], "once": [0.5]})
    answer = ask("job", "metrics", name)
    assert answer.code == 0, answer.err
    heading, _, *lines = rows(answer)
    assert heading == ["KEY", "LAST", "STEP", "MIN", "MAX", "COUNT"]
    assert ["loss", "2", "2", "1", "3", "3"] in lines
    assert ["once", "0.5", "0", "0.5", "0.5", "1"] in lines
    assert any(line[0] == ODD and line[1] == "nan" for line in lines)
    body = json.loads(ask("job", "metrics", "-n", name, "--key", "loss", "-o", "json").text)
    assert [(row["key"], row["count"], row["max"]) for row in body] == [("loss", 3, 3.0)]
    assert "loss" in ask("job", "metrics", name, "-o", "yaml").text
    counts = ask("job", "metrics", name, "--query", "[].count").text
    assert json.loads(counts) == [3, 1, 1]
    odd = ask("job", "metrics", name, "--key", ODD, "-o", "json").text
    assert [(row["value"], row["min"]) for row in json.loads(odd)] == [("NaN", None)]
    assert any(line[0] == ODD and line[3:5] == ["-", "-"] for line in lines)
    precise = runs({"pi": [math.pi]})
    assert ask("job", "metrics", precise, "-o", "tsv").text.split("\t")[1] == str(math.pi)
    refused = ask("job", "metrics", name, "--key", "los")
    assert refused.code == 2 and "hint: did you mean `loss`?" in refused.err
    assert ask("job", "metrics", "nobody").code == 2
    assert ask("job", "metrics", "--plot").code == 2


def test_charts_of_several_keys_and_runs(ask: Yard, runs: Runs) -> None:
    row = runs({"loss": [1 / (step + 1) for step in range(300)], ODD: [1.0, math.nan, 2.0]})
    two = runs({"loss": [2 / (step + 1) for step in range(200)]})
    alone = ask("job", "metrics", row, "--plot", "loss")
    lines = alone.text.splitlines()
    assert lines[0] == "loss" and max(map(len, lines)) <= 80 and "\x1b" not in alone.text
    assert any("⠀" < c < "⣿" or c == "⣿" for c in alone.text)
    assert lines[-1].split()[0] == "0"

    both = ask("job", "metrics", row, two, "--plot", "loss")
    assert both.text.splitlines()[-1].split() == ["a", row, "b", two]
    # Without colours letters tell the lines apart.
    assert "a" in both.text.splitlines()[-6] or "b" in both.text.splitlines()[-6]
    keys = ask("job", "metrics", row, "--plot", "loss", ODD)
    assert f"a loss   b {ODD}" in keys.text and "some values are NaN" in keys.text
    each = ask("job", "metrics", row, "--plot")
    assert [line for line in each.text.splitlines() if line in ("loss", ODD)] == ["loss", ODD]
    timed = ask("job", "metrics", row, two, "--plot", "loss", "--x", "time").text
    assert re.search(r"\b2 h\b", timed)
    drawn = json.loads(ask("job", "metrics", row, two, "--plot", "loss", "-o", "json").text)
    assert [(line["job"], line["count"], line["exact"]) for line in drawn] == [
        (row, 300, True),
        (two, 200, True),
    ]
    assert ask("job", "metrics", row, "--plot", "--from", 12, "--to", 10).code == 2
    assert ask("job", "metrics", row, "--follow", "-o", "json").code == 2
    zoomed = ask("job", "metrics", row, "--plot", "loss", "--from", 10, "--to", 12, "-o", "json")
    assert [x for x, _ in json.loads(zoomed.text)[0]["points"]] == [10, 11, 12]


def test_charts_with_a_logarithmic_axis_and_an_average(ask: Yard, runs: Runs) -> None:
    name = runs({"loss": [10.0 ** -(step % 4) for step in range(40)]})
    plain = ask("job", "metrics", name, "--plot", "loss").text
    logarithmic = ask("job", "metrics", name, "--plot", "loss", "--log").text
    assert "0.001 ┤" in logarithmic and "0.001 ┤" not in plain
    average = ask("job", "metrics", name, "--plot", "loss", "--smooth", 0.9)
    assert average.code == 0 and average.text != plain
    for arguments in (("--log",), ("--plot", "--smooth", 1), ("--plot", "--log", "-o", "json")):
        assert ask("job", "metrics", name, *arguments).code == 2


def test_follow_draws_until_the_job_has_ended(ask: Yard, runs: Runs) -> None:
    name = runs({"loss": [1.0, 0.5]})
    answer = ask("job", "metrics", name, "--plot", "loss", "--follow")
    assert answer.code == 0 and answer.text.splitlines()[-1] == f"{name} Completed"
    assert answer.text.count("└") == 1


def test_exports_hold_every_point(ask: Yard, runs: Runs, tmp_path: Path) -> None:
    values = [math.sin(step) for step in range(3000)]
    name = runs({"loss": values, ODD: [math.inf]})
    answer = ask("job", "metrics", name, "--export", "all.csv")
    assert answer.code == 0, answer.err
    with open("all.csv", newline="") as file:
        points = list(csv.DictReader(file))
    assert [float(row["value"]) for row in points if row["key"] == "loss"] == values
    assert [row["value"] for row in points if row["key"] == ODD] == ["Infinity"]
    assert ask("job", "metrics", name, "--export", "one.csv", "--key", ODD).code == 0
    assert len(Path("one.csv").read_text().splitlines()) == 2
    refused = ask("job", "metrics", name, "--export", "all.xls")
    assert refused.code == 2 and "`.csv` or `.parquet`" in refused.err
    assert ask("job", "metrics", name, "--export", "x.csv", "--key", "nope").code == 2
    assert not Path("x.csv").exists()


def test_an_export_of_several_jobs_says_whose_each_point_is(ask: Yard, runs: Runs) -> None:
    first, second = runs({"loss": [0.5, 0.25], ODD: [1.0]}), runs({"loss": [2.0]})
    answer = ask("job", "metrics", first, second, "--export", "both.csv")
    assert answer.code == 0, answer.err
    with open("both.csv", newline="") as file:
        points = [(row["job"], row["key"], float(row["value"])) for row in csv.DictReader(file)]
    loss = [(first, "loss", 0.5), (first, "loss", 0.25), (second, "loss", 2.0)]
    assert points == [*loss[:2], (first, ODD, 1.0), loss[2]]
    assert ask("job", "metrics", first, second, "--export", "odd.csv", "--key", ODD).code == 0
    assert len(Path("odd.csv").read_text().splitlines()) == 2
    refused = ask("job", "metrics", first, second, "--export", "x.csv", "--key", "los")
    assert refused.code == 2 and "hint: did you mean `loss`?" in refused.err
    frames = pytest.importorskip("pyarrow.parquet")
    assert ask("job", "metrics", first, second, "--export", "both.parquet").code == 0
    table = frames.read_table("both.parquet").to_pydict()
    assert list(zip(table["job"], table["key"], table["value"], strict=True)) == points


def test_compare_side_by_side(ask: Yard, runs: Runs) -> None:
    first = runs({"loss": [0.25]}, {"lr": "0.1", "same": "x"})
    two = runs({"loss": [0.5], "extra": [1.0]}, {"lr": "0.2", "same": "x"})
    answer = ask("job", "compare", first, two)
    table = {line[0]: line[1:] for line in rows(answer)}
    assert table["params.lr"] == ["0.1", "0.2", "≠"]
    assert table["params.same"] == ["x", "x"] and table["last extra"] == ["-", "1", "≠"]
    assert table["status"] == ["Completed", "Completed"]
    assert "\nMetrics (last values)\n" in ask("job", "show", "-n", first).text
    different = {line[0] for line in rows(ask("job", "compare", first, two, "--diff"))}
    assert {"params.lr", "last loss", "last extra"} <= different
    assert not {"params.same", "status"} & different
    body = json.loads(ask("job", "compare", first, two, "-o", "json").text)
    assert {"what": "params.lr", "different": True, first: "0.1", two: "0.2"} in body
    assert "metrics.extra\t-\t1.0\t≠\n" in ask("job", "compare", first, two, "-o", "tsv").text
    assert ask("job", "compare", first).code == 2
    odd = runs({"loss": [math.inf], ODD: [math.nan]})
    output = ask("job", "compare", first, odd, "-o", "json").text

    def refuse(text: str) -> None:
        raise AssertionError(f"`{text}` is not JSON")

    values = {row["what"]: row for row in json.loads(output, parse_constant=refuse)}
    assert values["metrics.loss"][odd] == "Infinity"
    assert values[f"metrics.{ODD}"][odd] == "NaN"


def names_of(client: Client) -> set[str]:
    return {job.name for job in client.jobs.list(max_results=None)}


def test_children_of_a_job_are_listed(runs: Runs, ask: Yard) -> None:
    parent = runs({"loss": [1.0]})
    children = {runs({"loss": [1.0]}, parent=parent) for _ in range(2)}
    listed = json.loads(ask("job", "list", "-p", parent, "-o", "json").text)
    assert {row["name"] for row in listed} == children
    refused = ask("job", "list", "--parent-job-name", "nobody")
    assert refused.code == 2 and "`nobody`" in refused.err


def test_delete_asks_first_and_says_what_goes(
    ask: Yard, runs: Runs, real: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = runs({"loss": [1.0] * 300})
    child = runs({"loss": [1.0]}, parent=parent)
    artifacts = f"/mlflow/default/api/2.0/mlflow-artifacts/artifacts/{_artifacts(runs, parent)}"
    runs.client.transport.send("PUT", f"{artifacts}/a.bin", b"x" * 5000, 5000)
    refused = ask("job", "delete", parent)
    assert refused.code == 2 and "confirm with `--yes`" in refused.err
    assert "5.0 kB of files and 301 metric points" in refused.err and child in refused.err
    assert {parent, child} <= names_of(runs.client)
    output = json.loads(ask("job", "delete", parent, "--dry-run", "-o", "json").text)
    assert [(row["name"], row["points"]) for row in output] == [(parent, 300), (child, 1)]
    deleted = ask("job", "delete", parent, "--yes")
    assert deleted.code == 0 and "2 jobs are deleted" in deleted.err
    assert not {parent, child} & names_of(runs.client)
    # Where the server's own round came first, the command does not wait for it.
    eventually(lambda: not _is_left(real.home, parent), "the job's files to be removed")
    assert ask("job", "show", parent).code == 2
    assert ask("job", "delete", parent, "--yes").code == 2


def _is_left(home: Path, name: str) -> bool:
    return any(name in row for _, folders, files in os.walk(home) for row in (*folders, *files))


def _artifacts(runs: Runs, name: str) -> str:
    answer = runs.client.transport.get(f"/mlflow/default/api/2.0/mlflow/runs/get?run_id={name}")
    uri: str = answer["run"]["info"]["artifact_uri"]
    return uri.partition("mlflow-artifacts:/")[2].lstrip("/")


def test_delete_refuses_what_runs_and_chooses_by_condition(ask: Yard, runs: Runs) -> None:
    others = runs({"loss": [1.0]}, experiment="other")
    failed = runs({"loss": [1.0]}, experiment="chosen", status="FAILED")
    done = runs({"loss": [1.0]}, experiment="chosen")
    running = runs({"loss": [1.0]}, experiment="chosen", status="RUNNING")
    refused = ask("job", "delete", running, done, "--yes")
    hint = f"hint: end it first: `yard job cancel -n {running}`"
    assert refused.code == 2 and hint in refused.err
    assert done in names_of(runs.client)
    assert ask("job", "delete", "--yes").code == 2
    assert ask("job", "delete", done, "--status", "Failed", "--yes").code == 2
    assert "write `30d`" in ask("job", "delete", "--older-than", "long", "--yes").err
    ask("job", "delete", "--experiment", "chosen", "--status", "Failed", "--yes")
    assert failed not in names_of(runs.client) and done in names_of(runs.client)
    nothing = ask("job", "delete", "--experiment", "chosen", "--older-than", "30000d", "--yes")
    assert nothing.code == 0 and "There is nothing to delete." in nothing.err
    # Its end was told as 2 s after 1970.
    ask("job", "delete", "--experiment", "chosen", "--older-than", "365d", "--yes")
    left = names_of(runs.client)
    assert done not in left and {running, others} <= left


def test_how_long_a_workspace_keeps_jobs(ask: Yard, runs: Runs) -> None:
    refused = ask("workspace", "update", "--retention-days", 9000)
    assert refused.code == 2 and "9000 days after they end?" in refused.err
    assert ask("workspace", "update", "--retention-days", 9000, "--yes").code == 0
    answer = ask("workspace", "show", "-o", "json")
    assert json.loads(answer.text)["retention_days"] == 9000
    assert ask("workspace", "update", "--retention-days", 0).code == 0
    assert ask("workspace", "update", "--retention-days", -1).code == 2
    assert ask("workspace", "update", "--set", "location=x").code == 2


def test_whom_a_workspace_tells_of_its_jobs(ask: Yard, tmp_path: Path) -> None:
    hook = "https://hooks.example.org/jobs"
    answer = ask(
        *("workspace", "update", "--notify", hook, "--notify", "ann@example.org"),
        *("--notify-on", "failed", "-o", "json"),
    )
    assert answer.code == 0, answer.err
    assert "sends no e-mail" in answer.err
    shown = json.loads(answer.text)
    assert shown["notify"] == [{"url": hook, "on": ["failed"]}]
    emails = {"email_on": ["JobFailed"], "emails": ["ann@example.org"]}
    assert shown["notification_settings"] == emails

    file = tmp_path / "told.yml"
    file.write_text(
        "torchyard:\n  notify:\n    - url_env: CHAT_URL\n      on: [failed, completed]\n"
        "  notify_secrets: {CHAT_URL: 'https://chat.example.org/T0-secret'}\n"
    )
    answer = ask("workspace", "update", "-f", str(file), "-o", "json")
    assert answer.code == 0, answer.err
    assert json.loads(answer.text)["notify_secrets"] == {"CHAT_URL": "*****"}
    assert "T0-secret" not in answer.text + ask("workspace", "show", "-o", "json").text

    file.write_text("torchyard:\n  notify:\n    - url_env: CHAT\n      on: failed\n")
    refused = ask("workspace", "update", "-f", str(file))
    assert refused.code == 2 and f"error: {file}:3:7: `url_env` names `CHAT`" in refused.err
    assert "hint: did you mean `CHAT_URL`?" in refused.err or "add it to" in refused.err
    for wrong, message in (
        (("--notify", "ann"), "`--notify ann` is neither a URL nor an e-mail address"),
        (("--notify-on", "failed"), "`--notify-on` is given without `--notify`"),
        (("--notify", "http://127.0.0.1/x"), "`127.0.0.1` is not at an address of the internet"),
        (("--set", "notify=[{url: 'ftp://x'}]"), "is not the URL of a webhook"),
    ):
        refused = ask("workspace", "update", *wrong)
        assert refused.code == 2 and message in refused.err and "hint:" in refused.err

    assert ask("workspace", "update", "--notify", "none").code == 0
    shown = json.loads(ask("workspace", "show", "-o", "json").text)
    assert (shown["notify"], shown["notification_settings"]) == ([], {})
    assert shown["notify_secrets"] == {}


def test_a_workspaces_file_updates_what_can_be_changed(ask: Yard, tmp_path: Path) -> None:
    file = tmp_path / "workspace.yml"
    file.write_text(
        "$schema: https://azuremlschemas.azureedge.net/latest/workspace.schema.json\n"
        "name: filed\nlocation: eastus\ndisplay_name: First\ntags: {team: vision}\n"
    )
    assert ask("workspace", "create", "-f", str(file)).code == 0
    file.write_text(file.read_text().replace("First", "Second").replace("vision", "speech"))
    changed = ask(
        *("workspace", "update", "--file", str(file), "--set", "description=d", "-o", "json")
    )
    shown = json.loads(changed.text)
    assert (shown["display_name"], shown["description"]) == ("Second", "d")
    assert (shown["name"], shown["tags"]) == ("filed", {"team": "speech"})

    file.write_text("name: filed\nlocation: elsewhere\ndisplay_name: Third\n")
    refused = ask("workspace", "update", "-f", str(file))
    assert refused.code == 2
    assert f"{file}:2:1: `location` of workspace `filed` is `eastus`" in refused.err
    file.write_text("name: filed\nlocatoin: eastus\n")
    refused = ask("workspace", "update", "-f", str(file))
    assert refused.code == 2 and f"{file}:2:1: `locatoin` can't be changed" in refused.err
    shown = json.loads(ask("workspace", "show", "-n", "filed", "-o", "json").text)
    assert shown["display_name"] == "Second"


@pytest.mark.parametrize(
    "columns",
    [
        [],
        [(0, 1.0, 1.0)],
        [(5, -3.0, -3.0), (6, -3.0, -3.0)],
        [(0, math.nan, math.nan), (1, math.inf, math.inf)],
        [(-(2**63), -1.7e308, 1.7e308), (2**63 - 1, 0.0, 1e-300)],
        [(x, 1e-9 * x, 1e-9 * x) for x in range(50)],
    ],
)
@pytest.mark.parametrize(
    "style", [plots.Style(), plots.Style(20, 4), plots.Style(60, 9, True, False)]
)
def test_every_chart_can_be_drawn(columns: list[Any], style: plots.Style) -> None:
    text = plots.draw([plots.Line("a", columns), plots.Line("b", columns[:1])], style, "title")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert plain.startswith("title\n") and "\x1b" not in plain
    assert max(len(line) for line in plain.splitlines()) <= max(style.width, 60)


def test_a_name_says_nothing_to_the_terminal() -> None:
    lines = [plots.Line(f"\x1b]0;x\x07\n{number}", [(0, 1.0, 1.0)]) for number in range(2)]
    text = plots.draw(lines, plots.Style(), "a\tb\x1b]0;title\x07")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert "\x1b" not in plain and plain.startswith("a�b�]0;title�\n")


def test_extremes_are_drawn_at_the_edges() -> None:
    rows = plots.draw([plots.Line("", [(0, 0.0, 0.0), (1, 9.0, 9.0)])], plots.Style(40, 10))
    first, *_, last, _, _ = rows.splitlines()
    assert first.rstrip()[-1] != "│" and last[last.index("┤") + 1] != " "


def test_tables_of_sdk_v1_are_shown(ask: Yard, runs: Runs) -> None:
    name = runs({"loss": [1.0]})
    logged = [
        {
            "name": "confusion",
            "columns": {"label": "string", "hits": "integer"},
            "value": [
                {
                    "metricId": f"r{number}",
                    "createdUtc": f"2026-11-21T16:00:0{number}Z",
                    "data": {"label": label, "hits": number},
                }
                for number, label in enumerate(("cat", "dog"))
            ],
            "properties": {"uxMetricType": "azureml.v1.table"},
        }
    ]
    path = f"/metric/v1.0{WORKSPACE}/runs/{name}/batch"
    assert runs.client.transport.post(path, {"values": logged})["errors"] == []
    shown = ask("job", "metrics", name).text
    assert f"\nconfusion (job {name})\n" in shown and shown.startswith("KEY")
    assert ["cat", "0"] in [line.split() for line in shown.splitlines()]
    assert ["dog", "1"] in [line.split() for line in shown.splitlines()]
    alone = ask("job", "metrics", name, "--key", "confusion").text
    assert alone.startswith("confusion") and "loss" not in alone
    page = ask("job", "show", "-n", name).text
    assert f"  confusion  2 rows\n  see them with `yard job metrics -n {name}`" in page
