"""Give the public files of Azure ML's online endpoints to `yard`, and note what came of them.

    python tools/run_endpoint_files.py --repository FOLDER.git > docs/transcripts/endpoints.md

`--repository` is a bare clone of https://github.com/Azure/azureml-examples; nothing of it is kept
here. A fresh server is started for it, and stopped at the end.

Owns: the copies of the files, what their placeholders become, stand-ins, the table.
Leaves: everything else to `yard`.
Always: each file is given to `yard` as the repository has it, before a placeholder in a copy of it
is filled in; a file of which something else came than `_EXPECTED` says fails the program.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TOP = "cli/endpoints/online"
ENDPOINT = "samples"
_LIMIT_S = 1200
_KINDS = {
    "endpoint": re.compile(r"schema: \S*OnlineEndpoint\.schema\.json"),
    "deployment": re.compile(r"schema: \S*OnlineDeployment\.schema\.json|^endpoint_name:", re.M),
}
_PLACEHOLDER = re.compile(r"\{\{.*?\}\}|<[A-Za-z_-]+>")
# As the repository's own scripts fill them, by `sed` or `--set`.
_VALUES = {
    "ENDPOINT_NAME": ENDPOINT, "endpoint_name": ENDPOINT, "my-endpoint-name": ENDPOINT,
    "ACR_NAME": "registry", "acr_name": "registry", "MODEL_VERSION": "1",
    "deployment_name": "sklearn-diabetes", "model_name": "sklearn-diabetes",
    "environment_name": "sklearn-diabetes-env", "KV_NAME": "vault",
    "SCORING_SCRIPT": "single-file-to-file-score.py", "CODE_DIR": "code-decorated",
}  # fmt: skip
_SAMPLE = "model-1/sample-request.json"
_JSON, _FORM = "application/json", "multipart/form-data; boundary=torchyard"
_ANSWER = "[11055.977245525679, 4503.079536107787]"
_COLLECTED = "data-collector/stand-in-request.json"
_STAND_IN_SCORE = """
import json, os
import mlflow, pandas
def init():
    global model
    folder = next(path for path, _, names in os.walk(os.environ["AZUREML_MODEL_DIR"])
                  if "MLmodel" in names)
    model = mlflow.pyfunc.load_model(folder)
def run(raw_data):
    return model.predict(pandas.DataFrame(**json.loads(raw_data)["input_data"])).tolist()
"""


@dataclass(frozen=True)
class Expected:
    """What comes of a file.

    Attributes:
        outcome: `accepted` (an endpoint), `refused`, `answered` or `failed`.
        request: the file that is sent to the deployment, below `TOP`.
        text: what the answer, the refusal or the failure holds.
        field: the form's field that the file is sent as; empty for JSON.
    """

    outcome: str
    text: str = ""
    request: str = ""
    field: str = ""


def _model_1(text: str = _ANSWER) -> Expected:
    return Expected("answered", text, _SAMPLE)


_OWN_SERVER = Expected("refused", "is not started here")
_NO_IMAGE = Expected("failed", "registry.azurecr.io")
_NO_PACKAGE = Expected("refused", "has no `code_configuration`")
_EXPECTED = {
    "custom-container/minimal/multimodel": _NO_IMAGE,
    "custom-container/minimal/single-model/conda-in-dockerfile": _NO_IMAGE,
    "custom-container/minimal/single-model/pip-in-dockerfile": _NO_IMAGE,
    "custom-container/mlflow": _OWN_SERVER,
    "custom-container/r": Expected("refused", "`plumber.R` is not a Python file"),
    "custom-container/tfserving": _OWN_SERVER,
    "custom-container/torchserve": _OWN_SERVER,
    "custom-container/triton": _OWN_SERVER,
    "data-collector/custom-blob-storage": Expected("refused", "data.path` is not served"),
    "data-collector/workspace-blob-storage": Expected("answered", "[[", _COLLECTED),
    "deploy-with-packages/custom-model/deployment.yml": _NO_PACKAGE,
    "deploy-with-packages/custom-model/model-deployment.yml":
        Expected("refused", "`regular_deployment` is not a valid `name`"),
    "deploy-with-packages/mlflow-model/deployment.yml": _NO_PACKAGE,
    # Pickled by scikit-learn 1.1.2, says its MLmodel; its conda file names 1.7.0.
    "deploy-with-packages/mlflow-model/model-deployment.yml": Expected(
        "failed", "error occurred in scoring script",
        "deploy-with-packages/mlflow-model/sample-request.json",
    ),
    "kubernetes/kubernetes-endpoint.yml": Expected("refused", "`compute` is not served"),
    "kubernetes/kubernetes-blue-deployment.yml": Expected("refused", "`type: kubernetes`"),
    "kubernetes/kubernetes-green-deployment.yml": Expected("refused", "`type: kubernetes`"),
    "managed/binary-payloads":
        Expected("answered", "JFIF", "managed/binary-payloads/input.jpg", "file"),
    **{
        f"managed/inference-schema/deployment-{kind}.yml": Expected(
            "answered", request=f"managed/inference-schema/sample-inputs/{kind}.json"
        )
        for kind in ("numpy", "pandas", "standard")
    },
    "managed/keyvault": Expected("failed", "init() raised"),
    "managed/managed-identities/1-uai-create-endpoint.yml":
        Expected("refused", "user_assigned"),
    "managed/managed-identities/2-sai-deployment.yml": Expected("failed", "init() raised"),
    "managed/managed-identities/2-uai-deployment.yml": Expected("failed", "init() raised"),
    "managed/minimal": _model_1(),
    "managed/openapi": _model_1("11055.97724552"),
    "managed/sample/blue": _model_1(),
    "managed/sample/green": _model_1("["),
    "managed/vnet/mlflow/endpoint.yml": Expected("refused", "`public_network_access: disabled`"),
    "managed/vnet/sample/endpoint.yml": Expected("refused", "`public_network_access: disabled`"),
    "managed/vnet/mlflow": _OWN_SERVER,
    "managed/vnet/sample": Expected("refused", "`egress_public_network_access: disabled`"),
    "ncd/lightgbm-deployment.yaml": Expected("answered", "[", "ncd/sample-request-lightgbm.json"),
    "ncd/sklearn-deployment.yaml": Expected("answered", "[", "ncd/sample-request-sklearn.json"),
    # Of MLflow before 2.0, and the environment's MLflow has no version.
    "ncd/sklearn-deployment-with-script.yaml": Expected("failed", "infer_and_parse_json_input"),
    "triton/single-model/create-managed-deployment.yaml":
        Expected("refused", "`type: triton_model` is not served"),
}  # fmt: skip
"""By the path below `TOP`, for deployments also by its beginning: the longest counts. An endpoint's
file that is not here is accepted."""

_HEAD = """# Endpoint files of Azure/azureml-examples

Made by `python tools/run_endpoint_files.py --repository FOLDER.git`: every endpoint's and every \
deployment's file in `cli/endpoints/online` (commit {commit}), given to `yard online-endpoint \
create -f FILE` and `yard online-deployment create -f FILE -e {endpoint}` on a fresh server. Each \
is given as the repository has it; where that holds placeholders, which the repository's own \
scripts fill in, a copy with them filled in is given, too, and a second line says what came of it. \
An accepted deployment is waited for and gets its sample request; then it is deleted.

Stand-ins, because the repository does not have them: the model, the script and the conda file \
that the files of `data-collector` name are those of `ncd/lightgbm-iris` with a script of six \
lines. Models and environments that files name are registered as the repository's scripts do it. \
No registry holds the images that the samples of custom containers build. Seconds are those of a \
busy machine with 2 cores, and hold the building of environments.

{counts}

| file | as it is | |
|---|---|---|
"""


@dataclass
class Outcome:
    path: str
    kind: str
    first: str = ""
    filled: Mapping[str, str] = field(default_factory=dict)
    outcome: str = ""
    text: str = ""
    seconds: int = 0

    @property
    def is_expected(self) -> bool:
        expectation = expected(self.path, self.kind)
        return self.outcome == expectation.outcome and expectation.text in self.text


class Yard:
    """`yard` over a home of its own, in a folder with the files' copies."""

    def __init__(self, top: Path) -> None:
        self.files = top / "files" / TOP
        environ = {name: text for name, text in os.environ.items() if "TORCHYARD" not in name}
        self.environ = {
            **environ,
            "TORCHYARD_HOME": str(top / "home"),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}",
        }

    def __call__(self, *words: str) -> tuple[int, str, str]:
        """Exit code, what it printed, and its error in one line."""
        done = subprocess.run(
            ["yard", *words], env=self.environ, cwd=self.files, capture_output=True, text=True
        )
        lines = [line for line in done.stderr.splitlines() if re.match("error:|hint:", line)]
        return done.returncode, done.stdout, "; ".join(lines).removeprefix("error: ")

    def json(self, *words: str) -> Any:
        code, printed, error = self(*words, "-o", "json")
        if code:
            raise SystemExit(f"yard {' '.join(words)}: {error}")
        return json.loads(printed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repository", type=Path, required=True)
    parser.add_argument("only", nargs="*", help="beginnings of paths below cli/endpoints/online")
    options = parser.parse_args()
    top = Path(tempfile.mkdtemp(prefix="endpoint-files-"))
    yard = Yard(top)
    outcomes = []
    try:
        copy(options.repository, top / "files")
        prepare(yard)
        for path, kind in files_in(yard.files):
            if not options.only or path.startswith(tuple(options.only)):
                outcomes.append(give(yard, path, kind))
                last = outcomes[-1]
                mark = "" if last.is_expected else "UNEXPECTED "
                print(f"{mark}{path}: {last.outcome} {last.text[:300]}", file=sys.stderr)
        yard("online-endpoint", "delete", "-n", ENDPOINT, "--yes")
    finally:
        yard("server", "stop")
        shutil.rmtree(top, ignore_errors=True)
    git = ["git", "--git-dir", str(options.repository), "rev-parse", "--short", "HEAD"]
    commit = subprocess.check_output(git, text=True).strip()
    head = _HEAD.format(commit=commit, endpoint=ENDPOINT, counts=counts(outcomes))
    sys.stdout.write(head + "".join(map(rows, outcomes)))
    sys.exit(0 if all(each.is_expected for each in outcomes) else 1)


def copy(repository: Path, target: Path) -> None:
    """The files; what the repository keeps elsewhere (large models) is left out."""
    git = ["git", "--git-dir", str(repository)]
    listed = subprocess.check_output(
        [*git, "ls-tree", "-r", "-z", "--name-only", "HEAD", TOP], text=True
    )
    for name in filter(None, listed.split("\0")):
        shown = subprocess.run([*git, "show", f"HEAD:{name}"], capture_output=True)
        if shown.returncode == 0:
            file = target / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(shown.stdout)


def prepare(yard: Yard) -> None:
    """What the files name: models, environments, an endpoint; and the stand-ins."""
    collector = yard.files / "data-collector"
    for folder in ("custom-blob-storage", "workspace-blob-storage"):
        (collector / folder / "scripts").mkdir()
        (collector / folder / "scripts" / "score.py").write_text(_STAND_IN_SCORE)
        shutil.copytree(yard.files / "ncd/lightgbm-iris/model", collector / folder / "model")
    shutil.copy(yard.files / "ncd/sample-request-lightgbm.json", yard.files / _COLLECTED)
    minimal = yard.files / "managed/minimal/single-model-registered/model.yml"
    filled(minimal, {"{{MODEL_VERSION}}": "1"})
    packages = "deploy-with-packages"
    (yard.files / "my-env.yml").write_text(
        "name: my-env\nversion: 1\nimage: mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04\n"
        "conda_file: model-1/environment/conda.yaml\n"
    )
    models = (
        ("my-model", "1", "model-1/model", "custom_model"),
        ("my-model", "2", "model-2/model", "custom_model"),
        ("iris_mlflow_model", "1", "ncd/lightgbm-iris/model", "mlflow_model"),
        ("sklearn-regression", "1", f"{packages}/custom-model/model", "custom_model"),
        ("heart-classifier-mlflow", "1", f"{packages}/mlflow-model/model", "mlflow_model"),
    )
    for name, version, path, kind in models:
        yard.json("model", "create", "-n", name, "-v", version, "--path", path, "--type", kind)
    for file in ("managed/inference-schema/model.yml", str(_filled_path(minimal))):
        yard.json("model", "create", "-f", file)
    for file in ("my-env.yml", f"{packages}/custom-model/environment/sklearn-regression-env.yml"):
        yard.json("environment", "create", "-f", file)
    yard.json("online-endpoint", "create", "-n", ENDPOINT)


def files_in(top: Path) -> list[tuple[str, str]]:
    """(path below `top`, kind) of every endpoint's and deployment's file."""
    listed = []
    for file in sorted(top.rglob("*")):
        if file.suffix.lower() in (".yml", ".yaml") and not file.name.startswith("filled-"):
            text = file.read_text()
            kind = next((name for name, form in _KINDS.items() if form.search(text)), "")
            if kind:
                listed.append((str(file.relative_to(top)), kind))
    return listed


def expected(path: str, kind: str) -> Expected:
    if kind == "endpoint":
        return _EXPECTED.get(path, Expected("accepted"))
    return _EXPECTED[max((each for each in _EXPECTED if path.startswith(each)), key=len)]


def give(yard: Yard, path: str, kind: str) -> Outcome:
    """Give a file to `yard`, and a copy without placeholders where it has some."""
    came = Outcome(path, kind)
    placeholders = _PLACEHOLDER.findall(without_comments((yard.files / path).read_text()))
    began = time.monotonic()
    create(yard, came, path)
    came.first = said(came)
    if placeholders and came.outcome == "refused":
        came.filled = {each: _VALUES[each.strip("{}<>")] for each in placeholders}
        came.outcome = came.text = ""
        file = filled(yard.files / path, came.filled)
        create(yard, came, str(file.relative_to(yard.files)))
    came.seconds = round(time.monotonic() - began)
    return came


def create(yard: Yard, came: Outcome, file: str) -> None:
    if came.kind == "endpoint":
        code, printed, error = yard("online-endpoint", "create", "-f", file, "-o", "json")
        came.outcome, came.text = ("refused", error) if code else ("accepted", "")
        name = "" if code else json.loads(printed)["name"]
        if name not in ("", ENDPOINT):
            yard("online-endpoint", "delete", "-n", name, "--yes")
        return
    words = ("-f", file, "-e", ENDPOINT, "--no-wait", "-o", "json")
    code, printed, error = yard("online-deployment", "create", *words)
    if code:
        came.outcome, came.text = "refused", error
        return
    name = json.loads(printed)["name"]
    options = ("-n", name, "-e", ENDPOINT)
    try:
        wait_and_ask(yard, came, options)
    finally:
        yard("online-deployment", "delete", *options, "--yes")


def wait_and_ask(yard: Yard, came: Outcome, options: Sequence[str]) -> None:
    began = time.monotonic()
    while True:
        shown = yard.json("online-deployment", "show", *options)
        if shown["provisioning_state"] not in ("Creating", "Updating"):
            break
        if time.monotonic() - began > _LIMIT_S:
            came.outcome, came.text = "failed", f"not ready after {_LIMIT_S} s"
            return
        time.sleep(1)
    if shown["provisioning_state"] != "Succeeded":
        came.outcome, came.text = "failed", shown["message"]
        return
    expectation = expected(came.path, came.kind)
    if not expectation.request:
        came.outcome, came.text = "accepted", "it is ready; the sample has no request"
        return
    status, answer = ask(yard, expectation, options[1])
    came.text = answer if status == 200 else f"{status}: {answer}"
    came.outcome = "answered" if status == 200 else "failed"


def ask(yard: Yard, expectation: Expected, deployment: str) -> tuple[int, str]:
    """What the deployment answers to its sample request."""
    content = (yard.files / expectation.request).read_bytes()
    kind = _JSON
    if expectation.field:
        name = Path(expectation.request).name
        part = f'form-data; name="{expectation.field}"; filename="{name}"'
        head = f"--torchyard\r\nContent-Disposition: {part}\r\n\r\n".encode()
        content, kind = head + content + b"\r\n--torchyard--\r\n", _FORM
    address = yard.json("online-endpoint", "show", "-n", ENDPOINT)["scoring_uri"]
    key = yard.json("online-endpoint", "get-credentials", "-n", ENDPOINT)["primaryKey"]
    headers = {
        "Authorization": f"Bearer {key}",
        "Content-Type": kind,
        "azureml-model-deployment": deployment,
    }
    request = urllib.request.Request(address, content, headers)
    # The first answer of a script may load what its model needs.
    for _ in range(3):
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, shown_answer(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                status, text = error.code, error.read().decode(errors="replace")
        if status != 408:
            break
    return status, text


def shown_answer(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        is_jpeg = b"JFIF" in content[:20]
        return f"{len(content)} bytes{' of a picture (JFIF)' if is_jpeg else ''}"


def filled(file: Path, values: Mapping[str, str]) -> Path:
    """A copy beside the file, with values in place of its placeholders."""
    text = file.read_text()
    for placeholder, value in values.items():
        text = text.replace(placeholder, value)
    _filled_path(file).write_text(text)
    return _filled_path(file)


def _filled_path(file: Path) -> Path:
    return file.with_name(f"filled-{file.name}")


def without_comments(text: str) -> str:
    return "\n".join(line.split(" #")[0] for line in text.splitlines() if line[:1] != "#")


def said(came: Outcome) -> str:
    text = " ".join(came.text.split()).replace("|", "\\|")
    # The file is in the row's first cell: its name and the place in it are enough.
    text = re.sub(r"^[^\s:]*/", "", text) if came.outcome == "refused" else text
    if came.outcome == "answered":
        return f"answered `{text[:120]}`" + ("" if len(text) <= 120 else " …")
    return f"{came.outcome}: {text[:400]}" if text else came.outcome


def counts(outcomes: Sequence[Outcome]) -> str:
    parts = []
    for kind in ("endpoint", "deployment"):
        there = [each for each in outcomes if each.kind == kind]
        ways = ("accepted", "answered", "failed", "refused")
        numbers = {way: sum(each.outcome == way for each in there) for way in ways}
        variables = {
            "accepted": "accepted", "answered": "accepted and answered their sample request",
            "failed": "accepted and failed for the reason in their row",
            "refused": "refused by name",
        }  # fmt: skip
        listed = ", ".join(f"{count} {variables[way]}" for way, count in numbers.items() if count)
        parts.append(f"{len(there)} files of {kind}s: {listed}.")
    return " ".join(parts)


def rows(came: Outcome) -> str:
    first = f"| `{came.path}` | {came.first} | {'' if came.filled else mark(came)} |\n"
    if not came.filled:
        return first
    values = ", ".join(f"`{name}`" for name in dict.fromkeys(came.filled))
    return first + f"| with {values} filled in | {said(came)} | {mark(came)} |\n"


def mark(came: Outcome) -> str:
    seconds = f"{came.seconds} s" if came.outcome in ("answered", "failed") else ""
    return seconds if came.is_expected else f"{seconds} unexpected".strip()


if __name__ == "__main__":
    main()
