"""Builds run strangers' code: as the build user, who reaches nothing and changes nothing later."""

from __future__ import annotations

import ast
import hashlib
import io
import json
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from environments import wheels
from eventually import eventually
from runner.shared_site import SharedSite, shared_site
from torchyard.base.blobs import Blobs
from torchyard.environments.build.kept_wheels import KeptWheels, write_note

pytestmark = [
    pytest.mark.runner,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be a runner"),
]

BACKEND = Path(__file__).with_name("hostile_backend.py")
_PYPROJECT = """
[build-system]
requires = []
build-backend = "hostile_backend"
backend-path = ["."]
[project]
name = "evil"
version = "1.0"
"""
SECRET = "the-databases-password"
PASSWORD = "index-password"


# A package's own code at its build: says as whom it runs, and has its environment's Python say so.
_SPY = """
import os, subprocess, sys
{wheels}
def note(word):
    with open({ran!r}, "a") as file:
        file.write(word + " " + subprocess.getoutput("id -un") + "\\n")
note("source")
for number in filter(str.isdigit, os.listdir("/proc")):
    try:
        if {password!r} in open("/proc/%s/environ" % number).read():
            note("password")
    except OSError:
        pass
def spoil():
    work = os.readlink("/proc/%s/cwd" % os.getppid())
    program = os.path.join(work, "venv", "bin", "python")
    if os.path.islink(program):
        real = os.path.realpath(program)
        os.unlink(program)
        with open(program, "w") as file:
            file.write("#!/bin/bash\\necho python $(id -un) >> {ran}\\n")
            file.write("exec -a %s %s \\"$@\\"\\n" % (program, real))
        os.chmod(program, 0o755)
def build_wheel(folder, settings=None, metadata=None):
    from pathlib import Path
    {spoil}
    return put(Path(folder), {name!r}, "1.0").name
"""


def _add_spy(site: SharedSite, name: str, spoil: bool = False) -> Path:
    """A source package whose code writes the names of its users into the file."""
    ran = site.folder / f"{name}.ran"
    ran.touch()
    ran.chmod(0o666)
    text = _SPY.format(
        wheels=Path(wheels.__file__).read_text().replace("from __future__ import annotations", ""),
        ran=str(ran),
        password=PASSWORD,
        name=name,
        spoil="spoil()" if spoil else "pass",
    )
    wheels.put_source(site.folder / "links", name, "1.0", text).chmod(0o644)
    return ran


def _users(ran: Path, word: str) -> set[str]:
    return {line.split()[1] for line in ran.read_text().splitlines() if line.startswith(word)}


@pytest.fixture(scope="module")
def site() -> Iterator[SharedSite]:
    with shared_site() as site:
        links = site.folder / "links"
        links.mkdir(mode=0o755)
        store = site.folder / "store"
        store.mkdir(mode=0o700)
        shutil.chown(store, site.user("server"), site.user("server"))
        site.environ = {"PGPASSWORD": SECRET, "MY_API_KEY": SECRET}
        site.environ |= {"UV_FIND_LINKS": str(links), "UV_NO_INDEX": "1"}
        index = f"https://reader:{PASSWORD}@index.invalid/simple"
        # Two that hold one, and that uv does not use here.
        site.environ |= {"UV_PUBLISH_URL": index, "UV_INDEX_OWN_PASSWORD": PASSWORD}
        site.start_server("--wheels", str(store))
        site.add_person("anna")
        yield site


def _add_source_distribution(site: SharedSite) -> None:
    targets = {
        "files": [
            *(str(site.home / name) for name in ("token", "torchyard.db", "signing.key")),
            *(str(site.tls_key), f"/proc/{site.servers[0].pid}/environ", "/etc/shadow"),
        ],
        "folders": [
            *(str(site.home), str(site.folder / "opt"), str(site.node_folder)),
            *(str(site.node_folder / name) for name in ("environments", "scratch", "cache")),
            *(str(site.node_folder / name) for name in ("workers", "builds", "pythons", "server")),
        ],
        "built": str(site.node_folder / "environments/*/lib/python*/site-packages/evil.py"),
    }
    file = site.folder / "links" / "evil-1.0.tar.gz"
    contents = {
        "pyproject.toml": _PYPROJECT,
        "hostile_backend.py": BACKEND.read_text(),
        "known.json": json.dumps(targets),
        "PKG-INFO": "Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n",
    }
    with tarfile.open(file, "w:gz") as archive:
        for name, text in contents.items():
            member = tarfile.TarInfo(f"evil-1.0/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    file.chmod(0o644)


def test_a_build_of_strangers_code_reaches_nothing(site: SharedSite) -> None:
    _add_source_distribution(site)
    environment = {"pip_requirements": ["evil==1.0"]}
    command = "python -c 'import evil; print(evil.found); print(hasattr(evil, \"late\"))'; id -un"
    name = site.submit("anna", command, environment=environment)
    job = site.wait(name)
    assert job["status"] == "Completed", job
    findings, late, account = site.output(name).splitlines()
    result = ast.literal_eval(findings)
    assert account == site.user("anna")
    assert result["user"] == site.user("build")
    assert (result["read"], result["foreign"], result["writable"]) == ([], [], [])
    assert not {"PGPASSWORD", "MY_API_KEY", "TORCHYARD_HOME"} & set(result["environ"])
    assert late == "False"


def test_jobs_read_environments_and_change_none(site: SharedSite) -> None:
    command = (
        "python - <<'EOF'\n"
        "import os, sys, sysconfig\n"
        "packages = os.path.realpath(sys.base_prefix)\n"
        "folder = os.environ['ENVIRONMENTS']\n"
        "names = os.listdir(folder)\n"
        "writable = [path for path, _, files in os.walk(folder) for name in ['', *files]\n"
        "            if os.access(os.path.join(path, name), os.W_OK)\n"
        "            and not os.path.islink(os.path.join(path, name))]\n"
        "print(len(names) > 0, writable)\n"
        "EOF"
    )
    variables = {"ENVIRONMENTS": str(site.node_folder / "environments")}
    name = site.submit("anna", command, environment_variables=variables)
    assert site.wait(name)["status"] == "Completed"
    assert site.output(name).strip() == "True []"
    server = site.uid("server")
    for folder in (site.node_folder / "environments").iterdir():
        for path in (folder, *folder.rglob("*")):
            status = path.lstat()
            assert status.st_uid == server and not status.st_mode & 0o6000, path


def test_nothing_of_a_build_stays(site: SharedSite) -> None:
    [file] = [
        path for path in (site.home / "environments").glob("*.log") if "evil" in path.read_text()
    ]
    eventually(file.with_suffix(".compiled").exists, "its modules are compiled")
    eventually(lambda: not site.processes_of("build"), "the build user has no process")
    eventually(lambda: not [*(site.node_folder / "builds").iterdir()], "no build has a folder")
    log = file.read_text()
    assert SECRET not in log


def test_the_build_user_takes_kept_wheels_when_the_index_is_gone(site: SharedSite) -> None:
    wheel = wheels.put(site.folder / "links", "plain", "1.0")
    wheel.chmod(0o644)
    environment = {"pip_requirements": ["plain==1.0"]}
    name = site.submit("anna", "python -c 'import plain'", environment=environment)
    assert site.wait(name)["status"] == "Completed"
    [log] = [
        path
        for path in (site.home / "environments").glob("*.log")
        if "plain==1.0" in path.read_text()
    ]
    blobs = Blobs(site.home / "blobs")
    content = wheel.read_bytes()
    row = {"path": wheel.name, "sha256": blobs.put_bytes(content), "size": len(content)}
    snapshot = blobs.put_snapshot({"files": [row]})
    note = log.with_suffix(".wheels")
    write_note(note, KeptWheels(snapshot.id, 1, len(content), ()))
    server = site.uid("server")
    for path in (note, *blobs.folder.rglob("*")):
        os.chown(path, server, server)
    wheel.unlink()
    shutil.rmtree(site.node_folder / "environments" / log.stem)
    name = site.submit("anna", "python -c 'import plain'", environment=environment)
    assert site.wait(name)["status"] == "Completed", log.read_text()
    assert "(kept wheels: 1)" in log.read_text()
    eventually(lambda: not [*(site.node_folder / "builds").iterdir()], "no build has a folder")


def test_wheels_are_fetched_as_the_build_user_and_no_source_is_run(site: SharedSite) -> None:
    """A `--no-binary` beside it had pip run its setup.py, as the server's user."""
    ran = _add_spy(site, "spy")
    wheels.put(site.folder / "links", "beside", "1.0").chmod(0o644)
    document = {
        "name": "spied",
        "version": "1",
        "pip_requirements": ["--no-binary spy", "spy==1.0", "beside==1.0"],
    }
    site.ask("POST", "/v1/workspaces/default/environments", document, "anna")
    name = site.submit("anna", "python -c 'import spy'", environment="spied:1")
    assert site.wait(name)["status"] == "Completed"
    assert _users(ran, "source") == {site.user("build")}
    [log] = [
        path
        for path in (site.home / "environments").glob("*.log")
        if "spy==1.0" in path.read_text()
    ]
    assert _users(ran, "password") == set()
    eventually(lambda: "kept wheels: 1 in" in log.read_text(), "the wheel is kept")
    store = site.folder / "store"
    assert [file.name for file in store.rglob("*.whl")] == ["beside-1.0-py3-none-any.whl"]
    assert next(store.iterdir()).stat().st_uid == site.uid("server")


def test_an_export_runs_no_python_of_an_environment(site: SharedSite) -> None:
    ran = _add_spy(site, "spoiled", spoil=True)
    environment = {"pip_requirements": ["spoiled==1.0"]}
    name = site.submit("anna", "true", environment=environment)
    site.wait(name)
    assert _users(ran, "source") == {site.user("build")}
    assert _users(ran, "password") == set()
    plan = site.ask(
        "POST", "/v1/workspaces/default/environments/image", {"environment": environment}, "anna"
    )
    assert plan["is_built"], "the build has to end for this to show anything"
    body = {"environment": environment, "hash": plan["hash"]}
    for layer in plan["layers"]:
        path = "/v1/workspaces/default/environments/image/layer"
        assert site.ask("POST", path, {**body, "layer": layer}, "anna")
    assert site.user("server") not in _users(ran, "python")


_SPOILER = """
import os, pathlib
{wheels}
def build_wheel(folder, settings=None, metadata=None):
    home = pathlib.Path.home()
    for top in (home, home / ".cache", pathlib.Path(os.environ.get("UV_CACHE_DIR", home))):
        for file in top.rglob("*"):
            if file.name == "__init__.py" and file.parent.name == "victim":
                os.chmod(file, 0o644)
                with open(file, "a") as opened:
                    opened.write("spoiled = True\\n")
    for store in pathlib.Path({store!r}).glob("*/*"):
        try:
            open(store, "a").write("spoiled")
        except OSError:
            pass
    return put(pathlib.Path(folder), "spoiler", "1.0").name
"""


def test_one_build_changes_no_other_environment(site: SharedSite) -> None:
    """A line that it appended to a file of the shared cache was in every later environment."""
    links, store = site.folder / "links", site.node_folder / "cache" / "wheels"
    for name in ("victim", "first", "second"):
        wheels.put(links, name, "1.0").chmod(0o644)
    code = Path(wheels.__file__).read_text().replace("from __future__ import annotations", "")
    text = _SPOILER.format(wheels=code, store=str(store))
    wheels.put_source(links, "spoiler", "1.0", text).chmod(0o644)
    command = "python -c 'import victim; print(hasattr(victim, \"spoiled\"))'"
    for other in ("first", "spoiler", "second"):
        environment = {"pip_requirements": ["victim==1.0", f"{other}==1.0"]}
        name = site.submit("anna", command, environment=environment)
        assert site.wait(name)["status"] == "Completed"
    assert site.output(name).strip() == "False"
    names = sorted(wheel.name.split("-")[0] for wheel in store.glob("*/*.whl"))
    assert names.count("victim") == 1 and {"first", "second"} <= set(names)
    for wheel in store.glob("*/*.whl"):
        assert hashlib.sha256(wheel.read_bytes()).hexdigest() == wheel.parent.name
    # The server goes on with modules of "second", and nothing of the builds is left.
    eventually(lambda: site.processes_of("build") == [], "the account is at rest")
    eventually(lambda: not (site.node_folder / "homes" / site.user("build")).exists(), "no home")


def test_an_image_is_not_built_as_the_servers_user(site: SharedSite) -> None:
    environment = {"image": "docker.io/library/ubuntu:24.04"}
    with pytest.raises(AssertionError, match="image_refused"):
        site.submit("anna", "true", environment=environment)


# Tries to put a module of its own where others would load it, and prints where that went well.
_PLANT = """
import os, sys
import compiled
store, (top, name) = sys.argv[1], os.path.split(compiled.__cached__)
planted = []
for folder in (store, *(path for path, _, _ in os.walk(store)), top, os.path.dirname(top)):
    for act in (
        lambda: os.chmod(folder, 0o777),
        lambda: open(os.path.join(folder, "planted.pyc"), "wb").close(),
        lambda: os.rename(folder, folder + "-aside"),
    ):
        try:
            act()
            planted.append(folder)
        except OSError:
            pass
for act in (
    lambda: open(compiled.__cached__, "wb").close(),
    lambda: os.chmod(compiled.__cached__, 0o666),
    lambda: os.unlink(compiled.__cached__),
):
    try:
        act()
        planted.append(compiled.__cached__)
    except OSError:
        pass
print(planted)
"""


def test_modules_are_compiled_for_all_and_no_job_can_plant_one(site: SharedSite) -> None:
    """By the build user, in a build of its own."""
    wheels.put(site.folder / "links", "compiled", "1.0", text="VALUE = 7\n").chmod(0o644)
    environment = {"pip_requirements": ["compiled==1.0"]}
    name = site.submit(
        "anna", "python -c 'import compiled; print(compiled.VALUE)'", environment=environment
    )
    assert site.wait(name)["status"] == "Completed" and site.output(name) == "7\n"
    [log] = [
        path
        for path in (site.home / "environments").glob("*.log")
        if "compiled==1.0" in path.read_text()
    ]
    eventually(log.with_suffix(".compiled").exists, "the modules are compiled")
    folder, store = (
        site.node_folder / "environments" / log.stem,
        site.node_folder / "cache/bytecode",
    )
    [module] = folder.glob("lib/python3*/site-packages/compiled/__pycache__/*.pyc")
    [stored] = [file for file in store.glob("*/*/*.pyc") if file.samefile(module)]
    status = stored.stat()
    assert (status.st_uid, status.st_mode & 0o7777) == (site.uid("server"), 0o444)
    before = module.read_bytes()
    (site.folder / "plant.py").write_text(_PLANT)
    (site.folder / "plant.py").chmod(0o644)
    plant = f"python {site.folder / 'plant.py'} {store}"
    name = site.submit("anna", plant, environment=environment)
    assert site.wait(name)["status"] == "Completed"
    assert site.output(name) == "[]\n"
    verbose = "python -v -c 'import compiled' 2>&1 | grep -c 'compiled.*matches'"
    name = site.submit("anna", verbose, environment=environment)
    assert site.wait(name)["status"] == "Completed" and site.output(name).strip() != "0"
    assert module.read_bytes() == before
    eventually(lambda: not [*(site.node_folder / "builds").iterdir()], "no build has a folder")
