"""Searching runs and experiments over HTTP, in the database."""

from __future__ import annotations

from typing import Any

import pytest

from mlflow.mlflow_server import Server, add_job
from torchyard.jobs import actions
from torchyard.jobs.requests import runs as job_runs
from torchyard.jobs.requests.run_search import View


def metric(key: str, value: Any) -> dict[str, Any]:
    return {"key": key, "value": value, "timestamp": 1, "step": 0}


@pytest.fixture
def runs(server: Server) -> dict[str, str]:
    """Four runs, `a` the oldest: name to id."""
    records_by_name: dict[str, dict[str, Any]] = {
        "a": {"metrics": [metric("acc", 0.1)], "params": [{"key": "my lr", "value": "Small"}]},
        "b": {"metrics": [metric("acc", "NaN")], "tags": [{"key": "stage", "value": "Dev_1"}]},
        "c": {
            "metrics": [metric("acc", 0.3), metric('odd "key"', 1)],
            "tags": [{"key": "stage", "value": "dev*2"}, {"key": "ü \\b", "value": "x"}],
        },
        "d": {"params": [{"key": "my lr", "value": "100%"}]},
    }
    run_ids = {}
    for index, (name, records) in enumerate(records_by_name.items()):
        run_ids[name] = server.new_run(run_name=name, start_time=1000 + index)
        fields: dict[str, Any] = {"run_id": run_ids[name], **records}
        server.post("runs/log-batch", **fields)
    return run_ids


def search_names(server: Server, filter: str = "", **fields: Any) -> str:
    body = server.post("runs/search", experiment_ids=["0"], filter=filter, **fields)
    return "".join(item["info"]["run_name"] for item in body["runs"])


FILTERS = (
    ("", "dcba"),
    ("metrics.acc >= 0.1", "ca"),
    ("metrics.acc != 0.1", "cb"),
    ('metrics.`odd "key"` = 1', "c"),
    ("params.`my lr` = 'Small'", "a"),
    ("params.\"my lr\" LIKE '%\\%'", ""),
    ("params.`my lr` LIKE '100%'", "d"),
    ("params.`my lr` ILIKE 'small'", "a"),
    ("params.`my lr` LIKE 'small'", ""),
    ("params.`my lr` IS NULL", "cb"),
    ("tags.stage LIKE 'dev%'", "c"),
    ("tags.stage ILIKE 'dev%'", "cb"),
    ("tags.stage LIKE 'dev*_'", "c"),
    ("tags.stage IS NOT NULL AND metrics.acc < 1", "c"),
    ("tags.`ü \\b` = 'x'", "c"),
    ("tags.mlflow.user = 'ada'", "dcba"),
    ("tag.`mlflow.runName` IN ('a', 'd')", "da"),
    ("attributes.start_time > 1001", "dc"),
    ("created = 1001", "b"),
    ("attribute.run_name != 'a'", "dcb"),
    ("status = 'RUNNING'", "dcba"),
    ("attributes.status != 'RUNNING'", ""),
    ("attributes.status LIKE 'RUN%' AND `Run name` = 'b'", "b"),
    ("end_time > 0", ""),
    ("user_id = 'ada' AND artifact_uri LIKE 'mlflow-artifacts:/%'", "dcba"),
)


def test_filters_select_runs(server: Server, runs: dict[str, str]) -> None:
    for filter, names in FILTERS:
        assert search_names(server, filter) == names, filter
    server.post("runs/search", expect=400, experiment_ids=["0"], filter="tags.`a\"b` = 'x'")


def test_runs_can_be_searched_by_ids(server: Server, runs: dict[str, str]) -> None:
    some = f"('{runs['a']}', '{runs['c']}')"
    assert search_names(server, f"attributes.run_id IN {some}") == "ca"
    assert search_names(server, f"run_id NOT IN {some}") == "db"


def test_runs_without_the_value_come_last(server: Server, runs: dict[str, str]) -> None:
    for orders, names in (
        (["metrics.acc"], "acbd"),
        (["metrics.acc DESC"], "cabd"),
        (["params.`my lr`"], "dacb"),
        (["attributes.start_time ASC"], "abcd"),
        (["status", "attributes.run_name"], "abcd"),
    ):
        assert search_names(server, order_by=orders) == names, orders
    # Databases sort texts by different rules; all put missing values last.
    names_found = search_names(server, order_by=["tags.stage DESC", "Created ASC"])
    assert (sorted(names_found[:2]), names_found[2:]) == (["b", "c"], "ad")


def test_runs_that_started_together_are_ordered_by_id(server: Server) -> None:
    ids = sorted(server.new_run(start_time=5) for _ in range(7))
    collected, token = [], ""
    for _ in range(4):
        body = server.post("runs/search", experiment_ids=["0"], max_results=2, page_token=token)
        collected += [item["info"]["run_id"] for item in body["runs"]]
        token = body.get("next_page_token", "")
    assert (collected, token) == (ids, "")


def test_runs_can_be_searched_by_dataset(server: Server, runs: dict[str, str]) -> None:
    def dataset_input(name: str, digest: str, context: str) -> dict[str, Any]:
        return {
            "dataset": {
                "name": name,
                "digest": digest,
                "source_type": "local",
                "source": "s",
                "schema": "{}",
            },
            "tags": [{"key": "mlflow.data.context", "value": context}],
        }

    both = [dataset_input("iris", "1", "training"), dataset_input("wine", "2", "testing")]
    server.post("runs/log-inputs", run_id=runs["a"], datasets=both)
    server.post("runs/log-inputs", run_id=runs["b"], datasets=both[:1])
    server.post("runs/log-inputs", run_id=runs["b"], datasets=both[:1])

    run = server.get("runs/get", run_id=runs["a"])["run"]
    assert run["inputs"]["dataset_inputs"] == both
    assert search_names(server, "dataset.name = 'iris'") == "ba"
    assert search_names(server, "datasets.name LIKE 'w%' AND dataset.context = 'testing'") == "a"
    assert search_names(server, "dataset.digest IN ('2', '3')") == "a"
    assert search_names(server, "dataset.context = 'testing'", order_by=["metrics.acc"]) == "a"
    summaries = server.post("experiments/search-datasets", experiment_ids=["0"])
    assert sorted(item["name"] for item in summaries["dataset_summaries"]) == ["iris", "wine"]
    for wrong in ("dataset.colour = 'red'", "dataset.name > 'a'"):
        server.post("runs/search", expect=400, experiment_ids=["0"], filter=wrong)


def test_deleting_an_experiment_deletes_its_runs(server: Server, runs: dict[str, str]) -> None:
    number = server.get("runs/get", run_id=runs["a"])["run"]["info"]["experiment_id"]
    server.post("experiments/delete", experiment_id=number)
    assert search_names(server) == ""
    assert search_names(server, run_view_type="DELETED_ONLY") == "dcba"
    server.post("experiments/restore", experiment_id=number)
    assert search_names(server) == "dcba"
    assert server.post("runs/search", experiment_ids=["987"])["runs"] == []


def test_a_page_of_runs_omits_their_specs(server: Server) -> None:
    experiment = job_runs.create_experiment(server.services, "default", "jobs", {})
    add_job(server, "default", "lucky_job", experiment.id)
    page = job_runs.find_runs(server.services.db, [experiment.id], View(), {})
    assert [(item.name, item.document) for item in page] == [("lucky_job", {})]
    assert actions.get(server.services, "default", "lucky_job").document == {
        "command": "python train.py"
    }


def test_experiments_can_be_filtered_and_paged(server: Server) -> None:
    for name, tags in (("a", "value"), ("ab", "vaLue"), ("Abc", None)):
        pairs = [] if tags is None else [{"key": "k", "value": tags}]
        server.post("experiments/create", name=name, tags=pairs)

    def names(**fields: Any) -> list[str]:
        body = server.post("experiments/search", **fields)
        return [item["name"] for item in body["experiments"]]

    assert sorted(names()) == ["Abc", "Default", "a", "ab"]
    assert names(filter="attribute.name = 'a'") == ["a"]
    assert names(filter="name LIKE 'a%'") == ["ab", "a"]
    assert names(filter="name ILIKE 'a%'") == ["Abc", "ab", "a"]
    assert names(filter="tag.k != 'value'") == ["ab"]
    assert names(filter="tags.k IS NULL AND creation_time > 0 AND name != 'Default'") == ["Abc"]
    first = server.post("experiments/search", max_results=3, order_by=["creation_time ASC"])
    following = names(page_token=first["next_page_token"], order_by=["creation_time ASC"])
    assert len(first["experiments"]) == 3 and len(following) == 1


def test_what_the_worker_samples_is_found_when_it_is_asked_for(server: Server) -> None:
    key = "system/node-0/cpu_utilization_percentage"
    run_id = server.new_run(run_name="a")
    own = "system/node-7/temperature"
    server.post("runs/log-batch", run_id=run_id, metrics=[metric("acc", 1), metric(own, 40)])
    server.sample(run_id, key, 50)

    def metrics_of(**fields: Any) -> list[str]:
        (run,) = server.post("runs/search", experiment_ids=["0"], **fields)["runs"]
        return [item["key"] for item in run["data"]["metrics"]]

    assert metrics_of() == ["acc", own]
    assert metrics_of(filter=f"metrics.`{key}` > 10") == ["acc", key, own]
    assert metrics_of(order_by=[f"metrics.`{key}` DESC"]) == ["acc", key, own]
    run = server.get("runs/get", run_id=run_id)["run"]
    assert [item["key"] for item in run["data"]["metrics"]] == ["acc", own]
    history = server.get("metrics/get-history", run_id=run_id, metric_key=key)
    assert [point["value"] for point in history["metrics"]] == [50]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["metrics", "params", "tags"])
def test_filters_of_400_conditions_are_answered(server: Server, kind: str) -> None:
    keys = [f"k{number}" for number in range(400)]
    value = 1 if kind == "metrics" else "1"
    records = [metric(key, 1) if kind == "metrics" else {"key": key, "value": "1"} for key in keys]
    run_id = server.new_run(run_name="a")
    for start in range(0, len(records), 100):
        fields: dict[str, Any] = {"run_id": run_id, kind: records[start : start + 100]}
        server.post("runs/log-batch", **fields)
    conditions = [f"{kind}.{key} = {value!r}" for key in keys]
    assert search_names(server, " AND ".join(conditions)) == "a"
    conditions[-1] = f"{kind}.k399 != {value!r}"
    assert search_names(server, " AND ".join(conditions), order_by=["metrics.z"] * 100) == ""


def test_a_filter_with_too_many_conditions_is_refused(server: Server) -> None:
    for number in (501, 2000):
        text = " AND ".join(["tags.a = 'b'"] * number)
        body = server.post("runs/search", expect=400, experiment_ids=["0"], filter=text)
        assert body["message"].startswith("the filter has more than 500 conditions")
    body = server.post("runs/search", expect=400, experiment_ids=["0"], filter=" " * 70_000)
    assert "70000 characters long; the limit is 65536" in body["message"]


def test_a_long_list_of_texts_is_searched(server: Server) -> None:
    server.new_run(run_name="a")
    names = ", ".join(f"'{number}'" for number in range(7_000))
    assert search_names(server, f"attributes.run_name IN ('a', {names})") == "a"
