"""MLflow's registered models and versions, requested as its clients do."""

from __future__ import annotations

from typing import Any

from mlflow.mlflow_server import Server

PROXY = "/api/2.0/mlflow-artifacts/artifacts"


def register(server: Server, name: str, *sources: str, **fields: Any) -> None:
    """A registered model with a version of each source."""
    server.post("registered-models/create", name=name, **fields)
    for source in sources:
        server.post("model-versions/create", name=name, source=source)


def upload(server: Server, uri: str, content: str, expect: int = 200) -> None:
    path = uri.removeprefix("mlflow-artifacts:")
    response = server.request("PUT", PROXY + path, content=content.encode())
    assert response.status_code == expect, response.text


def logged_run(server: Server) -> tuple[str, str]:
    """A run with a model of two files below `model`, and the URI of that folder."""
    run_id = server.new_run()
    root = server.get("runs/get", run_id=run_id)["run"]["info"]["artifact_uri"]
    upload(server, f"{root}/model/MLmodel", "flavors: {}")
    upload(server, f"{root}/model/data/w.bin", "weights")
    return run_id, f"{root}/model"


def files_at(server: Server, uri: str) -> dict[str, str]:
    """What a plain client downloads: it lists the files, and requests each of them."""
    root = uri.removeprefix("mlflow-artifacts:/")
    contents = {}

    def walk(folder: str) -> None:
        below = "/".join(part for part in (root, folder) if part)
        entries = server.request("GET", PROXY, params={"path": below}).json()["files"]
        for item in entries:
            path = f"{folder}/{item['path']}" if folder else item["path"]
            if item["is_dir"]:
                walk(path)
            else:
                contents[path] = server.request("GET", f"{PROXY}/{root}/{path}").text

    walk("")
    return contents


def names(server: Server, **fields: Any) -> list[str]:
    body = server.get("registered-models/search", **fields)
    return [item["name"] for item in body["registered_models"]]


def versions(server: Server, **fields: Any) -> list[str]:
    body = server.get("model-versions/search", **fields)
    return [f"{item['name']}:{item['version']}" for item in body["model_versions"]]


def test_a_registered_model_is_created_changed_renamed_and_deleted(server: Server) -> None:
    tags = [{"key": "team", "value": "vision"}]
    created = server.post("registered-models/create", name="a b", description="d", tags=tags)
    assert created["registered_model"]["tags"] == tags
    conflict = server.post("registered-models/create", expect=400, name="a b")
    assert conflict["error_code"] == "RESOURCE_ALREADY_EXISTS"
    assert conflict["message"].startswith("Registered Model (name=a b) already exists.")

    changed = server.call(
        "PATCH", "registered-models/update", json={"name": "a b", "description": "e"}
    )["registered_model"]
    assert changed["description"] == "e"
    assert changed["last_updated_timestamp"] >= changed["creation_timestamp"]
    server.post("registered-models/set-tag", name="a b", key="t", value="v")
    server.call("DELETE", "registered-models/delete-tag", json={"name": "a b", "key": "team"})
    server.post("registered-models/rename", name="a b", new_name="é")
    model = server.get("registered-models/get", name="é")["registered_model"]
    assert (model["tags"], model["description"]) == ([{"key": "t", "value": "v"}], "e")
    error = server.get("registered-models/get", expect=404, name="a b")
    assert error["error_code"] == "RESOURCE_DOES_NOT_EXIST"
    assert error["message"] == "Registered Model with name=a b not found"
    server.call("DELETE", "registered-models/delete", json={"name": "é"})
    assert names(server) == []


def test_names_that_cannot_be_part_of_a_uri_are_refused(server: Server) -> None:
    for name in ("", " ", "a/b", "a:b", "..", "a\u0000b", "a" * 257):
        refused = server.post("registered-models/create", expect=400, name=name)
        assert refused["error_code"] == "INVALID_PARAMETER_VALUE"


def test_prompts_are_not_supported(server: Server) -> None:
    prompt = [{"key": "mlflow.prompt.is_prompt", "value": "true"}]
    refused = server.post("registered-models/create", expect=404, name="p", tags=prompt)
    assert refused["error_code"] == "ENDPOINT_NOT_FOUND"
    register(server, "m", "s3://bucket/model")
    for tag in (
        "tags.`mlflow.prompt.is_prompt` != 'true'",
        "tag.`mlflow.prompt.is_prompt`='false'",
    ):
        assert names(server, filter=tag) == ["m"]
        assert versions(server, filter=f"name='m' AND {tag}") == ["m:1"]
    assert names(server, filter="tags.`mlflow.prompt.is_prompt` = 'true'") == []


def test_a_version_is_a_copy_that_plain_clients_download(server: Server) -> None:
    run_id, source = logged_run(server)
    server.post("registered-models/create", name="m ü%")
    version = server.post(
        "model-versions/create",
        name="m ü%",
        source=source,
        run_id=run_id,
        run_link="http://elsewhere",
        description="first",
        tags=[{"key": "a", "value": "1"}],
    )["model_version"]
    assert (version["version"], version["status"], version["run_id"]) == ("1", "READY", run_id)
    assert (version["source"], version["run_link"], version["current_stage"]) == (
        source, "http://elsewhere", "None",
    )  # fmt: skip
    uri = server.get("model-versions/get-download-uri", name="m ü%", version="1")["artifact_uri"]
    expected = {"MLmodel": "flavors: {}", "data/w.bin": "weights"}
    assert files_at(server, uri) == expected

    upload(server, f"{source}/MLmodel", "changed")
    assert files_at(server, uri) == expected
    upload(server, f"{uri}/MLmodel", "changed", expect=400)
    refused = server.request("DELETE", PROXY + uri.removeprefix("mlflow-artifacts:") + "/MLmodel")
    assert refused.status_code == 400
    assert files_at(server, uri) == expected

    for other in (f"runs:/{run_id}/model", "models:/m ü%/1", "models:/m ü%/latest", uri):
        server.post("model-versions/create", name="m ü%", source=other)
    newest = server.get("model-versions/get", name="m ü%", version="5")["model_version"]
    assert newest["run_id"] == run_id
    last = server.get("model-versions/get-download-uri", name="m ü%", version="4")["artifact_uri"]
    assert files_at(server, last)["data/w.bin"] == "weights"


def test_a_source_on_another_server_keeps_its_uri(server: Server) -> None:
    for name, source in (
        ("a", "s3://bucket/model"),
        ("b", "runs:/nobody/model"),
        ("c", "mlflow-artifacts:/1/nobody/artifacts/model"),
    ):
        register(server, name, source, f"models:/{name}/1")
        for version in ("1", "2"):
            body = server.get("model-versions/get-download-uri", name=name, version=version)
            assert body["artifact_uri"] == source


def test_the_servers_own_files_cannot_be_a_source(server: Server) -> None:
    register(server, "m")
    for source, says in (
        ("/etc/passwd", "To use a local path as a model version source"),
        ("file:///etc", "To use a local path as a model version source"),
        ("mlflow-artifacts:/1/../../x", "without relative path references"),
        ("mlflow-artifacts:/1/..%2f..%2fx", "without relative path references"),
    ):
        refused = server.post("model-versions/create", expect=400, name="m", source=source)
        assert refused["error_code"] == "INVALID_PARAMETER_VALUE"
        assert says in refused["message"]


def test_deleting_a_version_deletes_its_files_and_retires_its_number(server: Server) -> None:
    _, source = logged_run(server)
    register(server, "m", source, source)
    server.post("registered-models/alias", name="m", alias="best", version="2")
    uri = server.get("model-versions/get-download-uri", name="m", version="2")["artifact_uri"]
    server.call("DELETE", "model-versions/delete", json={"name": "m", "version": "2"})

    error = server.get("model-versions/get", expect=404, name="m", version="2")
    assert error["message"] == "Model Version (name=m, version=2) not found"
    assert server.request("GET", PROXY, params={"path": uri[len("mlflow-artifacts:/") :]}).is_error
    assert server.get("registered-models/get", name="m")["registered_model"]["aliases"] == []
    server.post("model-versions/create", name="m", source=source)
    assert versions(server, filter="name='m'") == ["m:3", "m:1"]
    number = server.get("model-versions/get", expect=400, name="m", version="x")
    assert number["message"] == "Parameter 'version' must be an integer, got 'x'."


def test_a_stage_transition_can_archive_the_other_versions(server: Server) -> None:
    register(server, "m", *["s3://a"] * 3)

    def move(version: str, stage: str, expect: int = 200, **options: Any) -> Any:
        return server.post(
            "model-versions/transition-stage", expect=expect,
            name="m", version=version, stage=stage, **options,
        )  # fmt: skip

    move("1", "production")
    move("2", "Production", archive_existing_versions=True)
    versions = server.get("registered-models/get", name="m")["registered_model"]["latest_versions"]
    assert {item["version"]: item["current_stage"] for item in versions} == {
        "1": "Archived", "2": "Production", "3": "None",
    }  # fmt: skip
    latest = server.post("registered-models/get-latest-versions", name="m", stages=["Production"])
    assert [item["version"] for item in latest["model_versions"]] == ["2"]
    unstaged = server.get("registered-models/get-latest-versions", name="m", stages=["none"])
    assert [item["version"] for item in unstaged["model_versions"]] == ["3"]
    assert "Value must be one of" in move("1", "shop", expect=400)["message"]
    refused = move("1", "None", expect=400, archive_existing_versions=True)
    assert "is not an Active stage" in refused["message"]


def test_an_alias_names_one_version(server: Server) -> None:
    register(server, "m", "s3://a", "s3://b")
    for version in ("1", "2"):
        server.post("registered-models/alias", name="m", alias="best", version=version)

    def alias(name: str, expect: int = 200) -> Any:
        return server.get("registered-models/alias", expect=expect, name="m", alias=name)

    version = alias("best")["model_version"]
    assert (version["version"], version["aliases"]) == ("2", ["best"])
    assert alias("latest")["model_version"]["version"] == "2"
    server.call("DELETE", "registered-models/alias", json={"name": "m", "alias": "best"})
    assert alias("best", expect=400)["message"] == "Registered model alias best not found."
    for bad in ("latest", "v2", "a b", ""):
        server.post("registered-models/alias", expect=400, name="m", alias=bad, version="1")
    server.post("registered-models/alias", expect=404, name="m", alias="x", version="9")
    server.post("registered-models/alias", expect=404, name="none", alias="x", version="1")


def test_search_filters_orders_and_pages_registered_models(server: Server) -> None:
    for name, team in (("Alpha", "a"), ("beta", "b"), ("alphabet", "a")):
        register(server, name, "s3://x", tags=[{"key": "team", "value": team}])
    assert names(server) == ["Alpha", "alphabet", "beta"]
    assert names(server, filter="name LIKE 'alpha%'") == ["alphabet"]
    assert names(server, filter="name ILIKE 'alpha%' AND tags.team = 'a'") == ["Alpha", "alphabet"]
    assert names(server, order_by=["name DESC"]) == ["beta", "alphabet", "Alpha"]
    server.post("registered-models/set-tag", name="Alpha", key="t", value="v")
    assert names(server, order_by="last_updated_timestamp DESC", max_results=1) == ["Alpha"]
    first = server.get("registered-models/search", max_results=2)
    assert names(server, max_results=2, page_token=first["next_page_token"]) == ["beta"]
    for bad in ({"filter": "run_id='x'"}, {"order_by": "size"}, {"max_results": 1001}):
        server.get("registered-models/search", expect=400, **bad)


def test_search_filters_orders_and_pages_versions(server: Server) -> None:
    run_id, source = logged_run(server)
    register(server, "m", source, "s3://a/b", source)
    register(server, "n", "s3://a/c")
    server.post("model-versions/set-tag", name="m", version="1", key="t", value="v")
    assert versions(server, filter=f"run_id = '{run_id}'", order_by="version_number") == [
        "m:1", "m:3",
    ]  # fmt: skip
    assert versions(server, filter="source_path LIKE 's3://%'", order_by="name") == ["m:2", "n:1"]
    assert versions(server, filter="name='m' AND version_number > 1") == ["m:3", "m:2"]
    assert versions(server, filter="tags.t = 'v'") == ["m:1"]
    assert versions(server)[0] == "m:1"
    server.call(
        "DELETE", "model-versions/delete-tag", json={"name": "m", "version": "1", "key": "t"}
    )
    assert versions(server, filter="tags.t = 'v'") == []
    first = server.get("model-versions/search", order_by=["name ASC"], max_results=3)
    assert versions(
        server, order_by=["name ASC"], max_results=3, page_token=first["next_page_token"]
    ) == ["n:1"]


def test_a_workspace_sees_only_its_own_models(server: Server) -> None:
    register(server, "m", "s3://a")
    path = "/mlflow/vision/api/2.0/mlflow/registered-models/search"
    assert server.request("GET", path).json()["registered_models"] == []
