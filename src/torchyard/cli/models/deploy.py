"""`yard model deploy`: from a registered model to an address that answers.

Owns: what is printed meanwhile, the line of curl at the end.
Leaves: the endpoint and its deployment to client/endpoints/model_deployments.py.
Always: the key is in the line of curl and nowhere else.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from torchyard.base.errors import InvalidInput
from torchyard.base.terminal_text import plain
from torchyard.cli.parsing.group import Verb
from torchyard.cli.parsing.options import Session, common, name_argument, version_of, versioned
from torchyard.cli.terminal import next_steps, tables

if TYPE_CHECKING:
    from torchyard.client.client import Client
    from torchyard.client.endpoints.online_deployments import OnlineDeployment
    from torchyard.client.endpoints.online_endpoints import OnlineEndpoint

# The code of the server's refusal.
_NEEDS_SCRIPT = "scoring_script_needed"


@click.command("deploy", cls=Verb)
@name_argument("model", "models")
@versioned
@click.option("--endpoint", default="", help="Endpoint name. Default: made from the model's.")
@click.option("--deployment", default="blue", help="Deployment name. Default: blue.")
@click.option("--environment", default="", help="Default: the environment of the model's job.")
@click.option("--code", default="", metavar="FOLDER", help="Folder with a scoring script.")
@click.option("--scoring-script", default="score.py", help="Its name. Default: score.py.")
@click.option("--instance-count", type=int, default=1, help="How many instances. Default: 1.")
@click.option("--no-wait", is_flag=True, help="Return before it answers, without traffic.")
@common
def deploy(
    session: Session,
    name: str,
    version: str,
    label: str,
    endpoint: str,
    deployment: str,
    environment: str,
    code: str,
    scoring_script: str,
    instance_count: int,
    no_wait: bool,
) -> None:
    """Deploy a registered model behind an endpoint, and print a line of curl that calls it.

    Models of type mlflow_model, ONNX files and exported programs need no scoring script.

    Example: yard model deploy -n digits --code ./scoring
    """
    from torchyard.client.endpoints.model_deployments import ModelDeployment

    client = session.client()
    name, which = version_of(name, version, label)
    model = client.models.get(name, which or "latest")
    options = ModelDeployment(
        endpoint, deployment, environment, code, scoring_script, instance_count
    )
    try:
        there, made = client.models.deployer().deploy(
            model, options, not no_wait, _teller(session.form)
        )
    except InvalidInput as error:
        if error.code != _NEEDS_SCRIPT:
            raise
        raise InvalidInput(
            f"model `{model.name}` needs a scoring script, or has to be an ONNX file",
            f"add `--code FOLDER` with a {scoring_script} in it, or export the model: "
            f"`yard model export-onnx {model.name} --example FILE`",
            code=error.code,
        ) from error
    shown = {"endpoint": there.name, "deployment": made.name,
             "model": f"azureml:{model.name}:{model.version}",
             "scoring_uri": there.scoring_uri, "curl": curl_line(client, there)}  # fmt: skip
    tables.one(session.form, shown, lambda: tables.fields(tables.titled(shown)))
    steps = next_steps.after_deploy(model.raw, there.name, made.name, not no_wait)
    next_steps.say(session.form, steps)


def _teller(form: tables.Form) -> Callable[[OnlineDeployment], None]:
    """Says what a deployment waits for, each thing once."""
    printed: set[str] = set()

    def tell(deployment: OnlineDeployment) -> None:
        if form.kind != "table" or deployment.state == "Failed":
            return
        texts = [deployment.message]
        for instance in deployment.raw.get("instances") or ():
            if instance.get("job"):
                job = instance["job"]
                texts.append(f"Job `{job}` starts an instance; see it with `yard job stream {job}`")
        for text in texts:
            if text and text not in printed:
                click.echo(plain(text), err=True)
                printed.add(text)

    return tell


def curl_line(client: Client, endpoint: OnlineEndpoint) -> str:
    """What a shell runs to score the file `request.json`; it holds the endpoint's key."""
    bearer = client.online_endpoints.credential(endpoint)
    words = ["curl", "--fail-with-body"]
    if endpoint.scoring_uri.startswith("https") and client.transport.ca_cert:
        words += ["--cacert", client.transport.ca_cert]
    words += ["-H", f"Authorization: Bearer {bearer}", "-H", "Content-Type: application/json"]
    return shlex.join([*words, "--data", "@request.json", endpoint.scoring_uri])
