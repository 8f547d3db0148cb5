"""Files on pages are accepted by their readers, code parses, and each page's commands are run.

Owns: which test runs a page's commands, and why those of the others are only parsed.
Leaves: parsing them to test_documented_commands.py, running them to the tests in RUN.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from documentation.snippets import PAGES, ROOT, Snippet, kind_of, snippets
from documentation.test_documented_commands import typed_commands
from schema_files import FILES
from torchyard.base.clock import SystemClock
from torchyard.base.documents import yaml_files
from torchyard.base.errors import TorchyardError
from torchyard.components import documents as components
from torchyard.compute import sizes
from torchyard.data import kinds as datastores
from torchyard.jobs.admission import machine
from torchyard.releases.vulnerabilities import audit
from torchyard.workspaces import notifications

# What a part of a file lacks of a whole one.
WHOLE: dict[str, dict[str, Any]] = {
    "job": {"command": "python train.py", "environment": "python"},
    "online-deployment": {"name": "blue", "endpoint_name": "numbers"},
    "pipeline": {"jobs": {"first": {"command": "python train.py", "environment": "python"}}},
}
# Another program's, which is not on this machine: its YAML alone is read.
OTHERS = {"prometheus"}

_END_TO_END = "tests/end_to_end/test_guides.py"
_SERVERS = "tests/end_to_end/test_guides_of_servers.py"
_BATCH = "tests/batch_endpoints/running/test_batch_endpoints_live.py"
# These run a page's commands in their order, and say which of them runs in another test.
RUN = {
    "README.md": _END_TO_END,
    "docs/tutorial.md": _END_TO_END,
    "docs/coming-from-azure-ml.md": _END_TO_END,
    "docs/index.md": _SERVERS,
    "docs/guides/azure-ml-code.md": _SERVERS,
    "docs/guides/batch-endpoints.md": _BATCH,
    "docs/guides/clusters.md": _END_TO_END,
    "docs/guides/drift.md": "tests/endpoints/running/test_endpoints_live.py",
    "docs/guides/endpoints.md": _END_TO_END,
    "docs/guides/environment-releases.md": _SERVERS,
    "docs/guides/environments.md": _END_TO_END,
    "docs/guides/first-job.md": _END_TO_END,
    "docs/guides/into-a-job.md": _END_TO_END,
    "docs/guides/from-model-to-answer.md": "tests/end_to_end/test_from_model_to_answer.py",
    "docs/guides/install.md": "tests/end_to_end/test_fresh_user.py",
    "docs/guides/machines.md": _SERVERS,
    "docs/guides/metrics.md": _END_TO_END,
    "docs/guides/monitoring.md": _END_TO_END,
    "docs/guides/nodes.md": _SERVERS,
    "docs/guides/onnx.md": "tests/end_to_end/test_model_to_onnx.py",
    "docs/guides/pipelines.md": "tests/end_to_end/test_pipelines_guide.py",
    "docs/guides/postgresql.md": _SERVERS,
    "docs/guides/preflight.md": _END_TO_END,
    "docs/guides/rehearsal.md": _SERVERS,
    "docs/guides/scheduling.md": _END_TO_END,
    "docs/guides/security.md": _SERVERS,
    "docs/guides/shared-server.md": _END_TO_END,
    "docs/guides/sweeps.md": "tests/end_to_end/test_sweeps_guide.py",
    "docs/guides/upgrade.md": _END_TO_END,
    "docs/guides/web-page.md": _END_TO_END,
    "examples/start/README.md": _SERVERS,
}
# Why the commands of a page are only parsed.
PARSED = {
    "docs/guides/containers.md": "need podman; tests/deployment/test_compose.py types them",
    "docs/guides/nebula.md": "needs a curated environment; tests/compat/nebula runs its scripts",
    "docs/guides/ray.md": "need a Ray cluster; tests/ray has one",
    "docs/guides/sign-in.md": "needs a provider; tests/sign_in has one",
    "docs/guides/slurm.md": "need a Slurm cluster; tests/slurm has one",
}


def _trial(body: Mapping[str, Any]) -> None:
    """A job file with `${{search_space.NAME}}`, as `yard job sweep` makes a sweep of it."""
    names = re.findall(r"search_space\.(\w+)", body["command"])
    space = {name: {"type": "uniform", "min_value": 0, "max_value": 1} for name in names}
    FILES["sweep"].read(
        {
            "type": "sweep",
            "trial": body,
            "search_space": space,
            "sampling_algorithm": "random",
            "objective": {"goal": "minimize", "primary_metric": "loss"},
            "limits": {"max_total_trials": 2},
        }
    )


def _recipients(body: Mapping[str, Any]) -> None:
    own = dict(body["torchyard"])
    secrets = own.pop("notify_secrets")
    FILES["job"].read({**WHOLE["job"], **body, "torchyard": own})
    notifications.merged({}, {"notify": own["notify"], "notify_secrets": secrets})


def _exceptions(body: Mapping[str, Any]) -> None:
    audit.read_exceptions(body["exceptions"])


def _datastore(body: Mapping[str, Any]) -> None:
    datastores.read_document(body, "default", SystemClock().now())


READERS: dict[str, Callable[[Any], object]] = {
    **{name: model.read for name, model in FILES.items()},
    "component": components.read,
    "trial": _trial,
    "recipients": _recipients,
    "datastore": _datastore,
    "exceptions": _exceptions,
}
# Files of the server's home, which it reads itself.
HOME_FILES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "machine": (machine.FILE, machine.read),
    "sizes": ("sizes.yml", sizes.all_sizes),
}


def kind(snippet: Snippet) -> str:
    return kind_of(yaml.safe_load(snippet.text))


def read(snippet: Snippet, folder: Path) -> None:
    """As the reader of its kind does, completed to a whole file."""
    name = kind(snippet)
    if name in HOME_FILES:
        file, read_home = HOME_FILES[name]
        (folder / file).write_text(snippet.text)
        read_home(folder)
    elif name not in OTHERS:
        (folder / "page.yml").write_text(snippet.text)
        body = yaml_files.read(folder / "page.yml", str(snippet)).value
        READERS[name]({**WHOLE.get(name, {}), **body})


@pytest.mark.parametrize("snippet", [*snippets("yaml", "yml")], ids=str)
def test_a_file_on_a_page_is_accepted_by_its_reader(snippet: Snippet, tmp_path: Path) -> None:
    read(snippet, tmp_path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("commnd: python train.py\n", "job"),
        ("type: sweep\ntrial: {}\n", "sweep"),
        ("type: pipeline\njobs: {first: {}}\n", "pipeline"),
        ("endpoint_name: numbers\nmodell: {}\n", "online-deployment"),
        ("type: amlcompute\nname: lab\nsise: large\n", "compute"),
        ("name: nas\ntype: local\n", "datastore"),
        ("workstation: {cores: many, memory_gb: 64}\n", "sizes"),
        ("exceptions: [{id: GHSA-1}]\n", "exceptions"),
    ],
)
def test_a_file_that_is_wrong_is_refused(text: str, expected: str, tmp_path: Path) -> None:
    snippet = Snippet(ROOT / "README.md", 1, "yaml", "", text)
    assert kind(snippet) == expected
    with pytest.raises(TorchyardError):
        read(snippet, tmp_path)


@pytest.mark.parametrize("snippet", [*snippets("json")], ids=str)
def test_json_on_a_page_can_be_read(snippet: Snippet) -> None:
    json.loads(snippet.text.replace("…", ""))


def test_python_on_pages_can_be_parsed() -> None:
    faults = []
    for snippet in snippets("python"):
        if snippet.page.name == "python-sdk.md" and snippet.page.parent.name == "reference":
            continue  # signatures, as they are written for people
        try:
            ast.parse(snippet.text)
        except SyntaxError as error:
            faults.append(f"{snippet}: {error}")
    assert faults == []


def test_lines_for_a_shell_can_be_parsed() -> None:
    faults = []
    for snippet in snippets("sh", "bash"):
        parsed = subprocess.run(["bash", "-n"], input=snippet.text, capture_output=True, text=True)
        if parsed.returncode:
            faults.append(f"{snippet}: {parsed.stderr}")
    assert faults == []


def test_the_commands_of_each_page_are_run_or_it_is_said_why_not() -> None:
    commands = {
        page.relative_to(ROOT).as_posix(): len(list(typed_commands(page.read_text())))
        for page in PAGES
    }
    pages = {name for name, count in commands.items() if count}
    assert pages - set(RUN) - set(PARSED) == set(), "add them to RUN or PARSED"
    assert (set(RUN) | set(PARSED)) - pages == set(), "they have no commands"
    assert set(RUN) & set(PARSED) == set()
    for page, test in RUN.items():
        assert Path(page).name in (ROOT / test).read_text(), f"{test} does not name {page}"
    for reason in PARSED.values():
        for place in re.findall(r"tests/[\w/.]+", reason):
            assert (ROOT / place.rstrip(".")).exists(), reason
    kinds = Counter(kind(snippet) for snippet in snippets("yaml", "yml"))
    files = sum(kinds.values()) - sum(kinds[name] for name in OTHERS)
    run, parsed = (sum(commands[name] for name in names) for names in (RUN, PARSED))
    print(f"\n{files} files accepted by their readers: {dict(kinds)}")
    print(f"{run} commands on {len(RUN)} pages run, {parsed} on {len(PARSED)} pages parsed only:")
    for name, reason in PARSED.items():
        print(f"  {commands[name]:3} {name}: {reason}")


def test_each_page_is_in_the_navigation_of_the_site() -> None:
    navigation = (ROOT / "zensical.toml").read_text()
    pages = [
        file.relative_to(ROOT / "docs").as_posix()
        for folder in ("guides", "reference", "transcripts")
        for file in (ROOT / "docs" / folder).glob("*.md")
    ]
    assert len(pages) > 50
    assert [page for page in pages if f'"{page}"' not in navigation] == []
