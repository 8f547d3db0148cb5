"""Running public notebooks: what is filled in, what counts as whole, sites in place of others."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from datetime import datetime, timezone
from pathlib import Path

import pytest

import run_notebooks
import stand_in_proxy
import stand_in_sign_in
from notebook_scan import Scan
from torchyard.base import certificates


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
            if "reason" in entry or "cause" in entry:
                assert entry["cause"] in notebooks_page.CAUSES and entry["reason"], notebook
            needs = run_notebooks.needs_of(entry)
            assert not needs.client or needs.client.startswith("notebooks-"), notebook


def test_a_stand_in_of_the_sign_in_gives_the_servers_token(tmp_path: Path) -> None:
    """Any id and secret are taken; other grants and other paths have no answer."""
    requests = []

    class Server(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append((self.path, self.headers["X-IDENTITY-HEADER"]))
            content = b'{"access_token": "t", "expires_in": "3600", "token_type": "Bearer"}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}/msi/token"
        certificates.ensure(tmp_path, {"localhost"}, datetime.now(timezone.utc))
        trusted = tmp_path / "trusted.pem"
        trusted.write_text(certificates.authority(tmp_path))
        sign_in = stand_in_sign_in.SignIn(
            {"IDENTITY_ENDPOINT": url, "IDENTITY_HEADER": "secret", "SSL_CERT_FILE": str(trusted)}
        )
        form = b"grant_type=client_credentials&client_id=a&client_secret=b&scope=https://x/.default"
        token = sign_in.post("/tenant/oauth2/v2.0/token", form)
        server.shutdown()
        thread.join()
    assert token is not None and (token["access_token"], token["expires_in"]) == ("t", 3600)
    assert requests == [("/msi/token?resource=https%3A%2F%2Fx", "secret")]
    assert sign_in.post("/tenant/oauth2/v2.0/token", b"grant_type=password&client_secret=b") is None
    assert sign_in.post("/tenant/other", form) is None
    documents = sign_in.get("/tenant/v2.0/.well-known/openid-configuration")
    assert documents is not None and documents["token_endpoint"].endswith(
        "/tenant/oauth2/v2.0/token"
    )
    assert sign_in.get("/tenant/other") is None


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


def test_a_stand_in_answers_as_a_public_container_of_azure(tmp_path: Path) -> None:
    """azureml-dataprep asks for an identity unless the container's metadata can be read."""
    container = tmp_path / "sites" / "acc.blob.example" / "data"
    (container / "green" / "puYear=2015").mkdir(parents=True)
    (container / "green" / "puYear=2015" / "a.parquet").write_bytes(b"PAR1")
    (container / "green" / "b.parquet").write_bytes(b"PAR")
    with stand_in_proxy.running(tmp_path / "sites", tmp_path / "tls") as proxy:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": proxy.url}))

        def answer(query: str, method: str = "GET") -> str:
            url = f"http://acc.blob.example/data{query}"
            with opener.open(urllib.request.Request(url, method=method)) as response:
                return str(response.read().decode())

        assert answer("?restype=container&comp=metadata", "HEAD") == ""
        everything = answer("?restype=container&comp=list&prefix=green/")
        assert "puYear=2015/a.parquet" in everything and "BlobPrefix" not in everything
        folders = answer("?restype=container&comp=list&prefix=green/&delimiter=/")
        assert "<BlobPrefix><Name>green/puYear=2015/</Name></BlobPrefix>" in folders
        assert "green/b.parquet" in folders and "a.parquet" not in folders
        assert not proxy.served
        assert answer("/green/puYear%3D2015/a.parquet") == "PAR1"
        assert proxy.served == {"acc.blob.example/data/green/puYear=2015/a.parquet"}


def test_the_scan_reads_the_cells_that_it_names() -> None:
    notebook = {
        "cells": [
            {"cell_type": "markdown", "source": ["Deploy it as a web service\n"]},
            {"cell_type": "code", "source": ["run = experiment.submit(src)\n"]},
        ]
    }
    code = Scan("how-to/", "code", "(?i:web ?service)")
    assert code.finds("how-to/a.ipynb", notebook)
    assert not code.finds("tutorials/a.ipynb", notebook)
    assert not Scan("how-to/", "all", "(?i:web ?service)").finds("how-to/a.ipynb", notebook)
    assert not Scan("", "code", r"submit\(").finds("how-to/a.ipynb", notebook)


# IPython, as far as notebook_cells.py uses it.
SHELL = """
import types


class InteractiveShell:
    user_ns = {}

    @classmethod
    def instance(cls):
        return cls()

    def run_line_magic(self, name, line):
        pass

    def run_cell(self, source, store_history):
        result = types.SimpleNamespace(error_before_exec=None, error_in_exec=None)
        try:
            exec(source, self.user_ns)
        except Exception as error:
            result.error_in_exec = error
        return result
"""


def test_cells_find_the_modules_beside_their_notebook(tmp_path: Path) -> None:
    cell = {"cell_type": "code", "metadata": {}, "source": ["import trainer; assert trainer.OK"]}
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": [cell]}))
    (tmp_path / "trainer.py").write_text("OK = True\n")
    package = tmp_path / "packages" / "IPython" / "core"
    package.mkdir(parents=True)
    (package / "interactiveshell.py").write_text(SHELL)
    results = tmp_path / "results.json"
    command = [sys.executable, str(run_notebooks.CELLS), "a.ipynb", str(results), "60"]
    variables = {**os.environ, "PYTHONPATH": str(tmp_path / "packages")}
    subprocess.run(command, cwd=tmp_path, env=variables, check=True, capture_output=True)
    assert json.loads(results.read_text())["results"][0]["error"] == ""
