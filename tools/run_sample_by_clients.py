"""Deploy the sklearn sample of azureml-examples, and ask it by four clients.

    python tools/run_sample_by_clients.py --repository FOLDER.git

`--repository` is a bare clone of https://github.com/Azure/azureml-examples; nothing of it is kept
here. Blue and green are created by the sample's own files with `yard`, get 90 and 10 percent of
the traffic, and 1,000 requests are counted. Then the sample's request is sent by curl, by `yard`
and by azure-ai-ml; SDK v1 deploys the same model with the same script as a web service, and asks
that. Every answer must be the sample's. Clients are those of `make newest-clients`.

Owns: what each client does, and comparing their answers.
Leaves: copies of the repository's files to run_endpoint_files.py.
Always: a fresh server is started, and stopped at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from run_endpoint_files import Yard, copy

REPOSITORY = Path(__file__).resolve().parent.parent
VENVS = REPOSITORY / ".azure-clients"
SDK_V2, SDK_V1 = "azure-ai-ml-1.35", "azureml-core-1.61"
REQUESTS = 1000
_BLUE = [11055.977245525679, 4503.079536107787]
_GREEN = [0.5, 0.5]
_SERVICE = "sample-service"
_BY_SDK_V2 = """
import json, sys
from azure.ai.ml import MLClient
from azure.identity import DefaultAzureCredential
config, endpoint, request = sys.argv[1:]
client = MLClient.from_config(DefaultAzureCredential(), path=config)
answer = client.online_endpoints.invoke(
    endpoint_name=endpoint, deployment_name="blue", request_file=request
)
print(json.dumps(json.loads(answer)))
"""
_BY_SDK_V1 = """
import json, sys
from azureml.core import Environment, Model, Workspace
from azureml.core.model import InferenceConfig
from azureml.core.webservice import AciWebservice
config, name, request, model, code, script, conda = sys.argv[1:]
workspace = Workspace.from_config(config)
if conda:
    environment = Environment.from_conda_specification("sample-env", conda)
else:
    environment = Environment.get(workspace, "python")
registered = Model.register(workspace, model_path=model, model_name=name)
inference = InferenceConfig(
    entry_script=script, source_directory=code, environment=environment
)
where = AciWebservice.deploy_configuration(cpu_cores=1, memory_gb=1)
service = Model.deploy(workspace, name, [registered], inference, where)
service.wait_for_deployment(show_output=False)
assert service.state == "Healthy", (service.state, service.error, service.get_logs())
with open(request) as file:
    answer = service.run(file.read())
service.delete()
print("\\n" + json.dumps(answer))
"""
Ask = Callable[..., Any]
"""A command of `yard`, without the word itself; returns the JSON that it prints."""


@dataclass(frozen=True)
class Sample:
    """Files of an endpoint with deployments `blue` and `green`; `model`, `code`, `script` and
    `conda` (empty for the environment `python`) are what SDK v1 is to deploy.
    """

    endpoint: Path
    blue: Path
    green: Path
    request: Path
    model: Path
    code: Path
    script: str
    conda: str
    answers: Mapping[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repository", type=Path, required=True)
    options = parser.parse_args()
    absent = [name for name in (SDK_V2, SDK_V1) if not (VENVS / name / "bin" / "python").exists()]
    if absent:
        print(f"error: {' and '.join(absent)} are not in {VENVS}", file=sys.stderr)
        sys.exit("hint: install them with `make newest-clients`")
    top = Path(tempfile.mkdtemp(prefix="sample-by-clients-"))
    yard = Yard(top)
    try:
        copy(options.repository, top / "files")
        (top / "config").mkdir()
        yard("workspace", "config", "--path", str(top / "config"))
        config = top / "config" / ".azureml" / "config.json"
        _, printed, _ = yard("client-env", "--shell", "json")
        variables = {**yard.environ, **json.loads(printed)}
        for title, answer in run(yard.json, published(yard.files), variables, config):
            print(f"{title:44} {answer}", flush=True)
    finally:
        for endpoint in yard.json("online-endpoint", "list"):
            yard("online-endpoint", "delete", "-n", endpoint["name"], "--yes")
        yard("server", "stop")
        shutil.rmtree(top, ignore_errors=True)


def published(files: Path) -> Sample:
    sample, model = files / "managed" / "sample", files / "model-1"
    return Sample(
        endpoint=sample / "endpoint.yml",
        blue=sample / "blue-deployment.yml",
        green=sample / "green-deployment.yml",
        request=model / "sample-request.json",
        model=model / "model",
        code=model / "onlinescoring",
        script="score.py",
        conda=str(model / "environment" / "conda.yaml"),
        answers={"blue": _BLUE, "green": _GREEN},
    )


def run(
    yard: Ask, sample: Sample, variables: Mapping[str, str], config: Path
) -> list[tuple[str, str]]:
    """What was done, and what came of it; fails where it is something else.

    Args:
        variables: those of `yard client-env`, over the environment.
        config: the workspace's config.json.
    """
    name = yard("online-endpoint", "create", "-f", str(sample.endpoint))["name"]
    for file in (sample.blue, sample.green):
        yard("online-deployment", "create", "-f", str(file))
    yard("online-endpoint", "update", "-n", name, "--traffic", "blue=90 green=10")
    shown = yard("online-endpoint", "show", "-n", name)
    key = yard("online-endpoint", "get-credentials", "-n", name)["primaryKey"]
    shares = count(shown["scoring_uri"], key, sample)
    expected = {"blue": REQUESTS * 9 // 10, "green": REQUESTS // 10}
    assert shares == expected, f"{REQUESTS} requests were divided as {shares}"
    answers = {
        "curl": by_curl(shown["scoring_uri"], key, sample),
        "yard": yard(
            *("online-endpoint", "invoke", "-n", name, "--deployment-name", "blue"),
            *("--request-file", str(sample.request)),
        ),
        "azure-ai-ml": by_client(
            SDK_V2, sample.model.parent, _BY_SDK_V2, variables, config, name, sample.request
        ),
        "SDK v1, its own web service": by_client(
            *(SDK_V1, sample.model.parent, _BY_SDK_V1, variables),
            *(config, _SERVICE, sample.request, sample.model),
            *(sample.code, sample.script, sample.conda),
        ),
    }
    for client, answer in answers.items():
        assert answer == sample.answers["blue"], f"{client} was answered {answer}"
    rows = [(f"{REQUESTS} requests, 90 and 10 percent of traffic", json.dumps(shares))]
    return rows + [(client, json.dumps(answer)) for client, answer in answers.items()]


def count(address: str, key: str, sample: Sample) -> dict[str, int]:
    """How many of the requests each deployment answered, by what it answers."""
    deployments = {json.dumps(answer): name for name, answer in sample.answers.items()}
    counts: Counter[str] = Counter()
    body = sample.request.read_bytes()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    for _ in range(REQUESTS):
        request = urllib.request.Request(address, body, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            counts[deployments[json.dumps(json.loads(answer.read()))]] += 1
    return dict(counts)


def by_curl(address: str, key: str, sample: Sample) -> Any:
    """The key comes by standard input: a command line can be read by everyone."""
    words = ["curl", "--fail", "--silent", "--show-error", "--header", "@-"]
    words += ["--data", f"@{sample.request}", address]
    headers = (
        f"Authorization: Bearer {key}\nContent-Type: application/json\n"
        "azureml-model-deployment: blue\n"
    )
    done = subprocess.run(words, input=headers, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def by_client(
    client: str, folder: Path, program: str, variables: Mapping[str, str], *words: Any
) -> Any:
    """Run a client's program in `folder`: SDK v1 registers no model from outside of it."""
    python = VENVS / client / "bin" / "python"
    command = [str(python), "-W", "ignore", "-c", program, *map(str, words)]
    environment = {**variables, "PATH": os.environ["PATH"]}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1200
    )
    assert done.returncode == 0, f"{client}: {done.stdout}\n{done.stderr}"
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        raise AssertionError(f"{client} printed no answer: {done.stdout}\n{done.stderr}") from None


if __name__ == "__main__":
    main()
