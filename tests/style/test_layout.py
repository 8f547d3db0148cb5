"""The shape of the tree: layers, the size of functions, and where the tests of a package lie."""

from __future__ import annotations

import ast
import configparser
import io
import os
import re
import shutil
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "torchyard"
TESTS = ROOT / "tests"
MOST_LINES = 60

# The two ends, then programs and what runs in jobs.
READERS_OF_VARIABLES = (
    "base/home/process_secrets.py",
    "base/settings.py",
    "cli/",
    "client/environments.py",
    "server.py",
    "server_options.py",
    "batch_endpoints/running/in_job/",
    "endpoints/running/in_instance/",
    "environments/build/build_program.py",
    "environments/conda/resolver.py",
    "environments/contents.py",
    "environments/selftest/",
    "executors/bootstrap_program.py",
    "executors/ray/bridge_program.py",
    "executors/ray/private_start.py",
    "executors/slurm/on_node.py",
    "local_program/",
    "node_agent/",
    "releases/workloads/",
    "runner/",
    "sweeps/search/process.py",
    "train/",
    "worker/",
)

# Suites that are about more than one package, and folders of what tests use.
CROSS_CUTTING = {
    "attacks": "hostile paths, links and names against every program",
    "causes": "what is said when distributed training goes wrong",
    "compat": "the packages below compat/",
    "cgroup_machine": "limits of jobs on a kernel of their own, in QEMU",
    "containers": "images and Dockerfiles with a real podman",
    "deployment": "torchyard's own image and compose file, with a real podman",
    "contracts": "what every implementation of an interface passes",
    "contracts_azure": "Azure ML's real clients",
    "documentation": "what pages say to type, and the site that is made of them",
    "end_to_end": "real jobs in built environments",
    "faults": "ranks, workers and servers that are killed",
    "fuzz": "the HTTP API, fuzzed from its own schema",
    "gpu": "what only a GPU can show",
    "hostile_input": "texts that make a parser slow, for every pattern and a real server",
    "mlflow_conformance": "MLflow's own tests of its stores",
    "public_examples": "files and scripts that others published",
    "recorded_home": "a home as a released version left it, opened by this one",
    "recordings": "what readers of documents made of thousands of inputs",
    "ray": "jobs on real Ray clusters",
    "slurm": "jobs on a real Slurm",
    "smoke": "one real test for each capability",
    "style": "words, layers and sizes",
    "tooling": "documents, releases and the programs below tools/",
    "web_page": "the web page in a real browser",
    "widgets": "Azure ML's notebook widget in a browser",
    "zero": "DeepSpeed and fairscale on ranks of their own",
}


def folders(top: Path) -> Iterator[Path]:
    yield top
    for folder in sorted(top.rglob("*")):
        if folder.is_dir() and folder.name != "__pycache__" and any(folder.glob("*.py")):
            yield folder


def test_no_function_is_longer_than_a_screen() -> None:
    long = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            assert node.end_lineno is not None
            lines = node.end_lineno - node.lineno + 1
            if lines > MOST_LINES:
                long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {lines} lines")
    assert long == []


def test_settings_are_read_at_the_ends_alone() -> None:
    readers = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
        and node.attr in ("environ", "environb", "getenv")
    }
    assert {path for path in readers if not path.startswith(READERS_OF_VARIABLES)} == set()


def test_tests_lie_where_their_package_lies() -> None:
    lost = []
    for folder in folders(TESTS):
        path = folder.relative_to(TESTS)
        if path.parts and path.parts[0] in CROSS_CUTTING:
            continue
        if any(folder.glob("test_*.py")) and not (SOURCE / path).is_dir():
            lost.append(path.as_posix())
    assert lost == []


def test_no_two_files_of_tests_have_one_name() -> None:
    # In folders that are no packages pytest collects only the first of them.
    names = [file.name for file in TESTS.rglob("test_*.py")]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []


def test_every_cross_cutting_suite_is_there() -> None:
    there = {folder.name for folder in TESTS.iterdir() if folder.is_dir()}
    assert set(CROSS_CUTTING) - there == set()


def contracts() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / ".importlinter")
    return parser


def test_every_package_with_packages_has_exhaustive_layers() -> None:
    parser = contracts()
    layered = {
        container
        for section in parser.sections()
        if parser[section].get("type") == "layers" and parser[section].getboolean("exhaustive")
        for container in parser[section]["containers"].split()
    }
    nested = {
        ".".join(("torchyard", *folder.relative_to(SOURCE).parts))
        for folder in folders(SOURCE)
        if any((child / "__init__.py").exists() for child in folder.iterdir() if child.is_dir())
    }
    # Migrations are Alembic's: a folder of steps that nothing imports.
    assert nested - layered - {"torchyard.base", "torchyard.base.migrations"} == set()


def test_every_store_is_protected() -> None:
    parser = contracts()
    protected = {
        module
        for section in parser.sections()
        if parser[section].get("type") == "protected"
        for module in parser[section]["protected_modules"].split()
    }
    stores = {
        ".".join(("torchyard", *path.relative_to(SOURCE).with_suffix("").parts))
        for path in SOURCE.rglob("*.py")
        if path.stem == "store" or path.stem.endswith("_store")
    }
    assert stores == protected - {"torchyard.train"}  # which is no store


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package, in which violations are planted one at a time."""
    top = tmp_path_factory.mktemp("planted")
    ignored = shutil.ignore_patterns("__pycache__", "curated", "*.js")
    shutil.copytree(SOURCE, top / "torchyard", ignore=ignored)
    shutil.copy(ROOT / ".importlinter", top)
    return top


def lint(top: Path) -> str:
    """What import-linter prints of the package below `top`."""
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-c", program, "--no-cache"],
        cwd=top,
        env={**os.environ, "PYTHONPATH": str(top), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.stdout + done.stderr


# (the module that gets an import, what it imports, the contract that is broken by it)
VIOLATIONS = [
    ("jobs/records/types", "torchyard.jobs.http.routes", "Layers of jobs"),
    ("data/actions", "torchyard.jobs.actions", "Imports go down"),
    ("mlflow/errors", "torchyard.azureml.common.errors", "Imports go down"),
    ("mlflow/errors", "torchyard.jobs.records.store", "Stores of jobs"),
    ("jobs/newcomer/__init__", "torchyard.base.clock", "Layers of jobs"),
    ("jobs/spec/parts", "torchyard.jobs.spec.job_spec", "No cycles"),
    ("client/times", "torchyard.jobs.records.types", "The command and the client"),
    ("worker/system/networks", "yaml", "The worker, the local program"),
    ("worker/in_rank/rank_record", "torchyard.shared.plan", "What runs in the user's Python"),
    ("jobs/actions", "torch", "Nothing imports torch"),
]


@pytest.mark.parametrize(("module", "imported", "contract"), VIOLATIONS)
def test_a_planted_violation_is_caught(
    module: str, imported: str, contract: str, planted: Path
) -> None:
    file = planted / "torchyard" / f"{module}.py"
    was = file.read_text() if file.exists() else None
    file.parent.mkdir(exist_ok=True)
    file.write_text((was or "") + f"\nimport {imported}\n")
    try:
        printed = lint(planted)
    finally:
        if was is None:
            shutil.rmtree(file.parent)
        else:
            file.write_text(was)
    assert re.search(rf"^{re.escape(contract)}.* BROKEN", printed, re.MULTILINE), printed[-3000:]


# A file's name in a docstring or a comment, or a pattern of them, unless part of a longer path.
_FILE = re.compile(r"(?<![\w/.*<>{}-])((?:[a-z_0-9*]+/)*[a-z_0-9*]+\.py)(?![\w\"'])")
# Files of other people: sources that a docstring cites, and scripts of users.
_FOREIGN = re.compile(r"azureml/|azure/ai/|submit\.py$|train\.py$|env\.py$")


def test_a_file_that_the_code_names_exists() -> None:
    missing = []
    for path in sorted(SOURCE.rglob("*.py")):
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
            is_docstring = token.type == tokenize.STRING and '"""' in token.string[:4]
            if token.type != tokenize.COMMENT and not is_docstring:
                continue
            for name in _FILE.findall(token.string):
                folders = [path.parent, *path.parents[: len(path.relative_to(ROOT).parts)], ROOT]
                if not _FOREIGN.search(name) and not any(any(f.glob(name)) for f in folders):
                    missing.append(f"{path.relative_to(ROOT)}:{token.start[0]} {name}")
    assert missing == []


_ARGS = re.compile(r"^Args:\n((?:    .*\n|\n)*)", re.MULTILINE)
_NAMES = re.compile(r"^    ([*\w]+(?:, [*\w]+)*):", re.MULTILINE)


def _described(node: ast.AST) -> set[str]:
    """The names that the `Args:` of a function's or a class's docstring begin a line with."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return set()
    section = _ARGS.search((ast.get_docstring(node) or "") + "\n")
    lines = _NAMES.findall(section.group(1)) if section else []
    return {name.lstrip("*") for line in lines for name in line.split(", ")}


def _names(node: ast.AST) -> set[str]:
    """A function's parameters; a class's fields, and the parameters of its `__init__`."""
    if not isinstance(node, ast.ClassDef):
        return {part.arg for part in ast.walk(node) if isinstance(part, ast.arg)}
    fields = {
        part.id
        for statement in node.body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        for part in ast.walk(statement)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }
    made = [part for part in node.body if getattr(part, "name", "") == "__init__"]
    return fields.union(*map(_names, made))


def _undescribed(text: str, inherited: frozenset[str] = frozenset()) -> list[str]:
    """What docstrings describe as parameters or fields that are none."""
    return [
        f"{getattr(node, 'name', '')}: {name}"
        for node in ast.walk(ast.parse(text))
        for name in sorted(_described(node) - _names(node) - inherited)
    ]


def test_docstrings_describe_parameters_that_exist() -> None:
    faults = {
        str(path.relative_to(ROOT)): found
        for path in sorted(SOURCE.rglob("*.py"))
        # `raw`: of client/resources.py's `Resource`.
        if (found := _undescribed(path.read_text(), frozenset({"raw"})))
    }
    assert faults == {}


def test_a_planted_parameter_is_seen() -> None:
    text = 'def f(a, *b):\n    """F.\n\n    Args:\n        a: x.\n        b, c: y.\n    """\n'
    assert _undescribed(text) == ["f: c"]
    text = 'class F:\n    """F.\n\n    Args:\n        a: x.\n        d: y.\n    """\n\n    a: int\n'
    assert _undescribed(text) == ["F: d"]
