"""Running public notebooks: what is filled in, what counts as whole, sites in place of others."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import pytest

import run_notebooks
import stand_in_proxy


def test_only_the_listed_placeholders_are_filled_in() -> None:
    text = 'MLClient("<SUBSCRIPTION_ID>", "<RESOURCE_GROUP>", "<JOB_NAME>")'
    values = {"<SUBSCRIPTION_ID>": "local", "<RESOURCE_GROUP>": "g", "<OTHER>": "x"}
    filled, placeholders = run_notebooks.fill_placeholders(text, values)
    assert filled == 'MLClient("local", "g", "<JOB_NAME>")'
    assert placeholders == ["<SUBSCRIPTION_ID>", "<RESOURCE_GROUP>"]


def test_a_notebook_is_whole_when_every_cell_has_passed() -> None:
    passed = {"cell": 1, "seconds": 0.1, "error": ""}
    document = {"exit_code": 0, "cells": 2, "results": [passed, passed]}
    assert run_notebooks.is_whole(document)
    assert not run_notebooks.is_whole({**document, "cells": 3})
    assert not run_notebooks.is_whole({**document, "results": [passed, {**passed, "error": "E"}]})
    assert not run_notebooks.is_whole({**document, "exit_code": 1})


def test_every_reason_has_a_cause_that_the_page_knows() -> None:
    import notebooks_page

    for suite in run_notebooks.read_suites().values():
        for notebook, entry in suite.notebooks.items():
            assert not entry or entry["cause"] in notebooks_page.CAUSES, notebook


def test_a_site_is_served_from_its_folder_and_others_are_written_down(tmp_path: Path) -> None:
    (tmp_path / "sites" / "data.example").mkdir(parents=True)
    (tmp_path / "sites" / "data.example" / "heart.csv").write_text("age\n63\n")
    (tmp_path / "secret").write_text("s")
    with stand_in_proxy.running(tmp_path / "sites", tmp_path / "tls") as proxy:
        handler = urllib.request.ProxyHandler({"http": proxy.url})
        opener = urllib.request.build_opener(handler)
        assert opener.open("http://data.example/heart.csv").read() == b"age\n63\n"
        for address in ("http://data.example/..%2f..%2fsecret", "http://other.example/x"):
            with pytest.raises(urllib.error.HTTPError) as error:
                opener.open(address)
            error.value.close()
        assert proxy.unreachable == {"http://other.example/x"}
