"""Run public notebooks of Azure ML whole and unmodified against a server of ours.

    python tools/run_notebooks.py sdk-v1 --repository FOLDER.git --work FOLDER [PATH ...]
    python tools/notebooks_page.py FOLDER PAGE > NEW_PAGE

`--repository` is a bare clone of the repository that `notebooks.yml` names; nothing of it is kept
here. Without a PATH every notebook of the list runs, the quickest first.

Owns: each notebook's folder, its client's variables, the placeholders a user fills in, the results.
Leaves: running cells to notebook_cells.py, the clients to tests/contracts_azure/client_venvs.py,
    data in place of sites to stand_in_data.py and stand_in_proxy.py.
Always: a cell is never edited, but for the placeholders of `notebooks.yml`; one server per SDK.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

import stand_in_proxy
from notebook_scan import Scan
from stand_in_sign_in import SignIn
from torchyard.environments.build import sealed

ROOT = Path(__file__).resolve().parent.parent
LISTS = Path(__file__).resolve().with_name("notebooks.yml")
CELLS = Path(__file__).resolve().with_name("notebook_cells.py")
STAND_IN_DATA = Path(__file__).resolve().with_name("stand_in_data.py")
UNCHECKED = Path(__file__).resolve().with_name("stand_in_unchecked.py")
CELL_LIMIT_S = 1200
ENDED = {"Completed", "Failed", "Canceled"}


@dataclass(frozen=True)
class Suite:
    """The notebooks of one repository, and with what they are run.

    `folders`: the parts of the repository that lie beside a notebook. `placeholders`: what a user
    writes in place of what the notebook prints. `repository_data`: by HOST/PATH, the file of the
    repository that holds what lies there. `commands`: what its user does before the first one, as
    `yard` commands. `scanned`: the notebooks that `scan` finds, by path, with why one doesn't run
    whole and what `Needs` has; `others`: more of them.
    """

    name: str
    repository: str
    commit: str
    client: str
    client_env: tuple[str, ...]
    folders: tuple[str, ...]
    placeholders: Mapping[str, str]
    repository_data: Mapping[str, str]
    commands: tuple[tuple[str, ...], ...]
    scan: Scan
    scanned: Mapping[str, Mapping[str, Any]]
    others: Mapping[str, Mapping[str, Any]]

    @property
    def notebooks(self) -> Mapping[str, Mapping[str, Any]]:
        return {**self.scanned, **self.others}

    @property
    def python(self) -> Path:
        return python_of(self.client)


@dataclass(frozen=True)
class Needs:
    """What one notebook's user brings along, beside what the suite says.

    `client`: the pinned client of another age. `placeholders`: more of them. `files`: what its user
    has beside it, by path, with a text each. `commands`: what they do before, as `yard` commands.
    `variables`: what they have set in their environment.
    `sign_in`: an application of theirs, at a stand-in of Microsoft's sign-in. `unchecked`: the
    notebook and these environments take data whose checksums are not those of the real files.
    `packages`: what they install beforehand, for requirements that the notebook leaves out.
    `tries`: how often it runs until it passes, where it draws at random.
    """

    client: str = ""
    placeholders: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    commands: tuple[tuple[str, ...], ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    sign_in: bool = False
    unchecked: tuple[str, ...] | None = None
    packages: tuple[str, ...] = ()
    tries: int = 1


def needs_of(entry: Mapping[str, Any]) -> Needs:
    values = {key: value for key, value in entry.items() if key not in ("cause", "reason")}
    if "commands" in values:
        values["commands"] = tuple(tuple(command.split()) for command in values["commands"])
    return Needs(**values)


def python_of(client: str) -> Path:
    return ROOT / ".azure-clients" / client / "bin" / "python"


@dataclass(frozen=True)
class Place:
    """Where a suite runs: `work` holds the server's home, results and logs."""

    suite: Suite
    git_folder: Path
    work: Path
    limit_s: int
    proxy: stand_in_proxy.StandInProxy

    @property
    def home(self) -> Path:
        return self.work / f"home-{self.suite.name}"

    def results(self, notebook: str) -> Path:
        return self.work / "results" / self.suite.name / f"{notebook.replace('/', '--')}.json"


def read_suites() -> dict[str, Suite]:
    lists = yaml.safe_load(LISTS.read_text(encoding="utf-8"))
    return {
        name: Suite(
            name=name,
            repository=suite["repository"],
            commit=suite["commit"],
            client=suite["client"],
            client_env=tuple(suite.get("client_env", ())),
            folders=tuple(suite["folders"]),
            placeholders=suite["placeholders"],
            repository_data=suite.get("repository_data", {}),
            commands=tuple(tuple(command.split()) for command in suite.get("commands", ())),
            scan=Scan(**suite["scan"]),
            scanned=suite["scanned"],
            others=suite["others"],
        )
        for name, suite in lists.items()
    }


def fill_placeholders(text: str, placeholders: Mapping[str, str]) -> tuple[str, list[str]]:
    """The notebook's text with its placeholders filled in, and which were there."""
    filled = []
    for placeholder, value in placeholders.items():
        if placeholder in text:
            filled.append(placeholder)
            text = text.replace(placeholder, value)
    return text, filled


def extract(git_folder: Path, folders: tuple[str, ...], target: Path) -> None:
    """Write the files of HEAD below `folders`; large ones that a mirror lacks are left out."""
    git = ["git", "--git-dir", str(git_folder)]
    listing = subprocess.run(
        [*git, "ls-tree", "-r", "-z", "HEAD", *folders], capture_output=True, text=True, check=True
    )
    with subprocess.Popen(
        [*git, "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as objects:
        assert objects.stdin is not None and objects.stdout is not None
        for entry in filter(None, listing.stdout.split("\0")):
            description, path = entry.split("\t", 1)
            _mode, kind, object_id = description.split()
            if kind != "blob":
                continue
            objects.stdin.write(f"{object_id}\n".encode())
            objects.stdin.flush()
            header = objects.stdout.readline().split()
            if header[1] == b"missing":
                continue
            file = target / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(objects.stdout.read(int(header[2]) + 1)[:-1])
        objects.stdin.close()


def make_stand_ins(suite: Suite, git_folder: Path, folder: Path) -> None:
    """The data in place of sites: what the repository itself holds of it, the rest made here."""
    for address, path in suite.repository_data.items():
        file = folder / address
        file.parent.mkdir(parents=True, exist_ok=True)
        git = ["git", "--git-dir", str(git_folder), "show", f"HEAD:{path}"]
        file.write_bytes(subprocess.run(git, capture_output=True, check=True).stdout)
    subprocess.run([suite.python, STAND_IN_DATA, folder], check=True)


def overlay_python(python: Path, folder: Path) -> Path:
    """A Python with the client's packages, into which a notebook's `pip install` may go."""
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    packages = _packages_of(python)
    (_packages_of(folder / "bin" / "python") / "client.pth").write_text(f"{packages}\n")
    for command in ("pip", "pip3"):
        script = folder / "bin" / command
        script.write_text(
            f"#!{folder}/bin/python\nimport sys\nfrom pip._internal.cli.main import main\n"
            "sys.exit(main())\n"
        )
        script.chmod(0o755)
    return folder / "bin" / "python"


def _packages_of(python: Path) -> Path:
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    printed = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return Path(printed.stdout.strip())


def yard(suite_run: Place, *arguments: str) -> str:
    variables = {name: text for name, text in os.environ.items() if not _is_foreign(name)}
    printed = subprocess.run(
        [Path(sys.executable).with_name("yard"), *arguments],
        env={**variables, **connection_of(suite_run), "TORCHYARD_HOME": str(suite_run.home)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return printed.stdout


def connection_of(suite_run: Place) -> dict[str, str]:
    """What the server and its jobs need to reach sites through the proxy."""
    bundle = suite_run.work / "stand-in-tls" / "trusted.pem"
    if not bundle.exists():
        trusted = os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().cafile or ""
        bundle.write_text(Path(trusted).read_text() + suite_run.proxy.authority)
    return _through(suite_run.proxy, bundle)


def take_unchecked(packages: Path) -> None:
    """Let the Python with these packages take data sets whatever their checksums."""
    shutil.copy(UNCHECKED, packages)
    (packages / f"{UNCHECKED.stem}.pth").write_text(f"import {UNCHECKED.stem}\n")


def uncheck_environments(suite_run: Place, names: tuple[str, ...]) -> None:
    """Build these environments, and let all of the server take data unchecked."""
    for name in names:
        yard(suite_run, "environment", "build", "-n", name)
    for mark in (suite_run.home / "environments").glob("*.mark"):
        folder = mark.with_suffix("")
        for packages in folder.glob("lib/python3*/site-packages"):
            if not (packages / UNCHECKED.name).exists():
                packages.chmod(0o755)
                take_unchecked(packages)
                mark.write_text(sealed.close(folder))


def _through(proxy: stand_in_proxy.StandInProxy, bundle: Path) -> dict[str, str]:
    connection = {name: str(bundle) for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT")}
    connection |= dict.fromkeys(
        ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"), proxy.url
    )
    connection |= dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
    # Where scikit-learn looks before it downloads.
    return {**connection, "SCIKIT_LEARN_DATA": str(proxy.folder / "scikit_learn_data")}


def _is_foreign(name: str) -> bool:
    return name.startswith(("TORCHYARD", "AZURE", "MLFLOW", "PYTEST", "VIRTUAL")) or name in (
        "PYTHONPATH",
        "PYTHONDONTWRITEBYTECODE",
    )


def redirection_of(suite_run: Place) -> dict[str, str]:
    redirection: dict[str, str] = json.loads(
        yard(suite_run, "client-env", "--shell", "json", *suite_run.suite.client_env)
    )
    return redirection


def notebook_variables(
    suite_run: Place, python: Path, folder: Path, redirection: Mapping[str, str]
) -> dict[str, str]:
    """The notebook's environment: the redirection to our server, and a home of its own."""
    bundle = folder / "trusted.pem"
    bundle.write_text(Path(redirection["SSL_CERT_FILE"]).read_text() + suite_run.proxy.authority)
    environ = {name: text for name, text in os.environ.items() if not _is_foreign(name)}
    temporary = folder / "tmp"
    temporary.mkdir()
    return {
        **environ,
        **redirection,
        **_through(suite_run.proxy, bundle),
        "HOME": str(folder),
        "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache" / "uv")),
        "PATH": f"{python.parent}{os.pathsep}{environ.get('PATH', '')}",
        "VIRTUAL_ENV": str(python.parent.parent),
        "TMPDIR": str(temporary),
        "MPLBACKEND": "agg",
        # Compiling thousands of modules is most of an install.
        "PIP_NO_COMPILE": "1",
        # `!more FILE`: end at the end of the file, as on Azure's machines, and wait for no key.
        "MORE": "-e",
    }


def run_notebook(suite_run: Place, notebook: str) -> dict[str, Any]:
    """Run one notebook in a fresh folder, and write down what each cell did."""
    needs = needs_of(suite_run.suite.notebooks.get(notebook, {}))
    (suite_run.work / "run").mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{suite_run.suite.name}-", dir=suite_run.work / "run"))
    tree = folder / "tree"
    extract(suite_run.git_folder, suite_run.suite.folders, tree)
    yard(suite_run, "workspace", "config", "--path", str(tree))
    file = tree / notebook
    filled_text, filled = fill_placeholders(
        file.read_text(encoding="utf-8"), {**needs.placeholders, **suite_run.suite.placeholders}
    )
    file.write_text(filled_text, encoding="utf-8")
    client = python_of(needs.client) if needs.client else suite_run.suite.python
    python = overlay_python(client, folder / "python")
    for command in needs.commands:
        yard(suite_run, *command)
    for path, text in needs.files.items():
        (file.parent / path).parent.mkdir(parents=True, exist_ok=True)
        (file.parent / path).write_text(text, encoding="utf-8")
    if needs.unchecked is not None:
        take_unchecked(_packages_of(python))
        uncheck_environments(suite_run, needs.unchecked)
    if needs.packages:
        install = ["-m", "pip", "install", "--quiet", "--no-compile", *needs.packages]
        subprocess.run([python, *install], check=True)
    redirection = redirection_of(suite_run)
    suite_run.proxy.sign_in = SignIn(redirection) if needs.sign_in else None
    variables = {**notebook_variables(suite_run, python, folder, redirection), **needs.variables}
    document = _run_cells(suite_run, notebook, python, file, variables)
    document["placeholders"] = filled
    suite_run.results(notebook).write_text(json.dumps(document, indent=1))
    shutil.rmtree(folder, ignore_errors=True)
    return document


def _run_cells(
    suite_run: Place, notebook: str, python: Path, file: Path, variables: Mapping[str, str]
) -> dict[str, Any]:
    """What each cell of `file` did, how its jobs ended, which sites it reached."""
    results = suite_run.results(notebook)
    results.parent.mkdir(parents=True, exist_ok=True)
    results.unlink(missing_ok=True)
    jobs_before = set(job_statuses(suite_run))
    began = time.monotonic()
    suite_run.proxy.unreachable.clear()
    suite_run.proxy.served.clear()
    with results.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(
            [python, CELLS, file, results, str(suite_run.limit_s)],
            cwd=file.parent,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            exit_code = process.wait()
        finally:
            _end_group(process)
    document: dict[str, Any] = json.loads(results.read_text()) if results.exists() else {}
    new_jobs = set(job_statuses(suite_run)) - jobs_before
    return document | {
        "jobs": wait_for_jobs(suite_run, new_jobs),
        "notebook": notebook,
        "torchyard": _own_commit(),
        "seconds": round(time.monotonic() - began),
        "exit_code": exit_code,
        "unreachable": sorted(suite_run.proxy.unreachable),
        "served": sorted(suite_run.proxy.served),
    }


def _own_commit() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "--short=7", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def job_statuses(suite_run: Place) -> dict[str, str]:
    """By job; runs that the notebook itself logs to are none."""
    jobs = json.loads(
        yard(suite_run, "job", "list", "--include-archived", "--all-results", "true", "-o", "json")
    )
    return {job["name"]: job["status"] for job in jobs if job["type"] != "run"}


def wait_for_jobs(suite_run: Place, names: set[str]) -> dict[str, str]:
    """How the jobs ended that the notebook submitted; some notebooks don't wait for theirs."""
    deadline = time.monotonic() + suite_run.limit_s
    while True:
        statuses = {name: text for name, text in job_statuses(suite_run).items() if name in names}
        if set(statuses.values()) <= ENDED or time.monotonic() > deadline:
            return statuses
        time.sleep(2)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End what the notebook has left running, such as TensorBoard."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def passed_cells(document: Mapping[str, Any]) -> int:
    return sum(not result["error"] for result in document.get("results", []))


def is_whole(document: Mapping[str, Any]) -> bool:
    return document.get("exit_code") == 0 and passed_cells(document) == document.get("cells")


def _run(suite_run: Place, notebooks: list[str]) -> int:
    suite_run.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    yard(suite_run, "workspace", "update", "--rehearse-on-cpu")
    for command in suite_run.suite.commands:
        yard(suite_run, *command)
    complete = 0
    for notebook in notebooks:
        tries = needs_of(suite_run.suite.notebooks.get(notebook, {})).tries
        for number in range(1, tries + 1):
            document = {**run_notebook(suite_run, notebook), "tries": number}
            if is_whole(document):
                break
        suite_run.results(notebook).write_text(json.dumps(document, indent=1))
        complete += is_whole(document)
        errors = [result["error"] for result in document.get("results", []) if result["error"]]
        print(
            f"{passed_cells(document)}/{document.get('cells', '?')} {document['seconds']} s "
            f"{notebook}",
            *(f"    job {job}: {text}" for job, text in document["jobs"].items()),
            *(re.sub(r"(?m)^", "    ", error) for error in errors),
            sep="\n",
            flush=True,
        )
    print(f"{complete} of {len(notebooks)} notebooks passed whole")
    return 0 if complete == len(notebooks) else 1


def main(arguments: list[str]) -> int:
    suites = read_suites()
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("suite", choices=sorted(suites))
    options.add_argument("--repository", type=Path, required=True, help="a bare clone")
    options.add_argument("--work", type=Path, required=True, help="for the server and the results")
    options.add_argument("--limit", type=int, default=CELL_LIMIT_S, help="seconds for one cell")
    options.add_argument("notebooks", nargs="*", metavar="PATH")
    chosen = options.parse_intermixed_args(arguments)
    suite = suites[chosen.suite]
    work = chosen.work.resolve()
    stand_ins = work / f"stand-ins-{suite.name}"
    make_stand_ins(suite, chosen.repository, stand_ins)
    with stand_in_proxy.running(stand_ins, work / "stand-in-tls") as proxy:
        suite_run = Place(suite, chosen.repository, work, chosen.limit, proxy)
        try:
            return _run(suite_run, chosen.notebooks or list(suite.notebooks))
        finally:
            if (suite_run.home / "server.json").exists():
                yard(suite_run, "server", "stop")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
