"""The deployment's file: from a mapping to a `DeploymentSpec`.

Owns: `DeploymentSpec`; what stands at the top of a deployment's file; its model and its code.
Leaves: its parts to settings.py; whether model, code and environment exist to actions.
Always: a `DeploymentSpec` is whole and valid; every error says where by `at`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torchyard.base.documents.checks import TEXT, At, By, Text, Texts, Truth, Whole, Word
from torchyard.base.documents.models import Document, File, declared, refused, rule
from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import described, texts
from torchyard.endpoints.spec import inference_config, settings
from torchyard.endpoints.spec.data_collection import CollectorSettings, DataCollector
from torchyard.endpoints.spec.endpoint_spec import READ_ONLY, check_name
from torchyard.endpoints.spec.inference_config import InferenceConfig
from torchyard.endpoints.spec.settings import (
    MOST_AT_ONCE,
    OwnSettings,
    Probe,
    RequestSettings,
    ScaleSettings,
)
from torchyard.shared.plurals import plural

MLFLOW = "mlflow_model"
AS_A_JOB = "as of a job: see [the job file](job-file.md)"
_REQUESTS, _PROBE, _SCALE, _OWN = RequestSettings(), Probe(), ScaleSettings(), OwnSettings()
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}\Z", re.ASCII)
WORKERS = "WORKER_COUNT"
"""How many processes of an instance answer requests, each one at a time; 1 by default."""
_FOLDER = re.compile(r"[\w.-]{1,100}\Z", re.ASCII)
_TRITON = (
    "`type: triton_model` is not served: no Triton server runs here",
    "deploy the ONNX file or the TorchScript program itself, as `custom_model`",
)
_KUBERNETES = (
    "`type: kubernetes` is not served",
    "leave it out, and name a cluster by `torchyard: {cluster: …}`",
)
_EGRESS = (
    "`egress_public_network_access: disabled` is not served",
    "an owner of the workspace limits the network of its jobs",
)


@dataclass(frozen=True)
class ModelReference:
    """`path` is `azureml:<name>:<version>`, `snapshot:<id>` or what a model's path may name.

    `folder` is the model's own folder below AZUREML_MODEL_DIR, empty where its files are directly
    in it. `is_file` says that it is one file. `processes` is how many predict side by side in an
    instance where nothing else is said: more than one for a model of which it is known that its
    predictions leave it as it is, 0 for any other.
    """

    path: str
    type: str = "custom_model"
    name: str = ""
    version: str = ""
    description: str = ""
    folder: str = ""
    is_file: bool = False
    processes: int = 0


@dataclass(frozen=True)
class CodeConfiguration:
    """`code` is `snapshot:<id>`, `scoring_script` a path in it."""

    code: str
    scoring_script: str


@dataclass(frozen=True)
class AnyDeploymentSpec:
    """What deployments of either kind have; `environment` is None where the model brings it."""

    name: str
    endpoint_name: str
    model: ModelReference | None = None
    code: CodeConfiguration | None = None
    environment: str | Mapping[str, Any] | None = None
    environment_variables: Mapping[str, str] = field(default_factory=dict)
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class DeploymentSpec(AnyDeploymentSpec):
    """`notices` say what has no effect here."""

    instance_type: str = ""
    instance_count: int = 1
    request_settings: RequestSettings = _REQUESTS
    liveness_probe: Probe = _PROBE
    readiness_probe: Probe = _PROBE
    scale_settings: ScaleSettings = _SCALE
    data_collector: DataCollector | None = None
    own_settings: OwnSettings = _OWN
    notices: tuple[str, ...] = ()


class ModelFile(Document):
    path: str = declared("", "a file or folder here, or what a model's `path` may name", Text())
    type: str = declared(
        "custom_model",
        "`custom_model` (the default) or `mlflow_model`",
        Word("custom_model", MLFLOW, refused={"triton_model": _TRITON}),
    )
    name: str = declared("", "registers the model under this name", Text())
    version: str = declared("", "of the name", By(lambda value, at: str(value)))
    description: str = declared("", "of the name", Text())
    folder: str = declared("", "its folder below `AZUREML_MODEL_DIR`; the client writes it", Text())
    is_file: bool = declared(False, "it is one file; the server writes it", Truth())
    processes: int = declared(
        0, "that predict side by side in an instance; the server writes it", Whole(0, 1000)
    )

    @rule("path")
    def _path(self) -> None:
        if not self.path:
            raise InvalidSpec("`model` has no `path`", "for example `path: ./model`")

    @rule("folder")
    def _folder(self) -> None:
        if self.folder and (not _FOLDER.match(self.folder) or self.folder in (".", "..")):
            raise InvalidSpec(f"`{self.folder[:50]}` is not a folder's name", at=("folder",))


class CodeFile(Document):
    code: str = declared("", "a folder here; a snapshot is taken", Text())
    scoring_script: str = declared("", "a Python file in it, with `init` and `run`", Text())

    @rule("code")
    def _code(self) -> None:
        self._there("code", self.code)

    @rule("scoring_script")
    def _script(self) -> None:
        script = self.scoring_script
        self._there("scoring_script", script)
        is_outside = script.startswith("/") or ".." in script.split("/") or "\0" in script
        if not script.endswith(".py") or is_outside:
            raise InvalidSpec(
                f"`{script[:80]}` is not a Python file in the code's folder",
                "for example `scoring_script: score.py`",
                at=("scoring_script",),
            )

    def _there(self, key: str, value: str) -> None:
        if not value:
            raise InvalidSpec(
                f"`code_configuration` has no `{key}`",
                "for example `{code: ./src, scoring_script: score.py}`",
            )


def _model(value: Any, at: At) -> ModelReference | None:
    if value == "":
        return None
    if isinstance(value, str):
        return ModelReference(value)
    return ModelReference(**dict(ModelFile.read(value, at)))


def _code(value: Any, at: At) -> CodeConfiguration:
    file = CodeFile.read(value, at)
    return CodeConfiguration(file.code, file.scoring_script.removeprefix("./"))


def _environment(value: Any, at: At) -> str | Mapping[str, Any] | None:
    if value == "":
        return None
    if not isinstance(value, str | Mapping):
        raise InvalidSpec(
            f"`environment` must be a name or a mapping, not {described(value)}",
            "for example `environment: {conda_file: conda.yml}`",
            at=at,
        )
    if isinstance(value, Mapping) and value.get("inference_config"):
        InferenceConfig.read(value["inference_config"], (*at, "inference_config"))
    written: str | Mapping[str, Any] = value
    return written


def _variables(value: Any, at: At) -> dict[str, str]:
    values = texts({at[-1]: value}, str(at[-1]), at[:-1])
    for variable, text in values.items():
        if not _VARIABLE.match(variable) or "\0" in text:
            raise InvalidSpec(
                f"`{variable[:80]}` is not a valid name for an environment variable",
                "use letters, digits and `_`, beginning with a letter",
                at=(*at, variable),
            )
    return values


VARIABLES = By(_variables)


class DeploymentFile(File):
    """The file of either kind of deployment, as far as they have the same keys."""

    subject: ClassVar[str] = "the deployment"

    name: str = declared("", "as of an endpoint", Text())
    endpoint_name: str = declared("", "an endpoint of the same workspace", Text())
    description: str = declared("", check=Text())
    tags: dict[str, str] = declared({}, "texts and numbers", Texts())
    properties: dict[str, str] = declared({}, "texts and numbers", Texts())
    model: ModelReference | None = declared(
        None, "`azureml:<name>:<version>`, or `{path, type}`", By(_model, of=ModelFile, else_=TEXT)
    )
    code_configuration: CodeConfiguration | None = declared(
        None, "`{code, scoring_script}`; MLflow and ONNX need none", By(_code, of=CodeFile)
    )
    environment: str | Mapping[str, Any] | None = declared(
        None, f"{AS_A_JOB}; an MLflow model brings its own", By(_environment)
    )
    environment_variables: dict[str, str] = declared({}, AS_A_JOB, VARIABLES)
    id: None = refused(READ_ONLY)
    provisioning_state: None = refused(READ_ONLY)

    @rule("name")
    def _name(self) -> None:
        check_name(self.name, "name", self.subject)

    @rule("endpoint_name")
    def _endpoint_name(self) -> None:
        check_name(self.endpoint_name, "endpoint_name", self.subject)

    @rule("environment", "code_configuration")
    def _server(self) -> None:
        inference_config.refuse_other_servers(self.environment, self.code_configuration is not None)

    @property
    def of_any(self) -> dict[str, Any]:
        """The values of `AnyDeploymentSpec`."""
        return {
            "name": self.name,
            "endpoint_name": self.endpoint_name,
            "model": self.model,
            "code": self.code_configuration,
            "environment": self.environment,
            "environment_variables": self.environment_variables,
            "description": self.description,
            "tags": self.tags,
            "properties": self.properties,
        }


class OnlineDeploymentFile(DeploymentFile):
    type: str = declared(
        "managed",
        "`managed`",
        Word("managed", refused={"kubernetes": _KUBERNETES}),
        support="satisfied",
    )
    instance_type: str = declared(
        "", "the cluster decides: `torchyard: {cluster: …}`", Text(), support="satisfied"
    )
    instance_count: int = declared(1, "1 or more", Whole(1, 1000))
    request_settings: RequestSettings = declared(_REQUESTS, "see below")
    liveness_probe: Probe = declared(_PROBE, "see below")
    readiness_probe: Probe = declared(_PROBE, "see below")
    scale_settings: ScaleSettings = declared(_SCALE, "see below")
    data_collector: CollectorSettings | None = declared(None, "see below")
    app_insights_enabled: bool = declared(
        False, "logs and metrics are kept here, whatever it says", Truth(), support="satisfied"
    )
    egress_public_network_access: str = declared(
        "enabled", "`enabled`", Word("enabled", refused={"disabled": _EGRESS}), support="satisfied"
    )
    torchyard: OwnSettings = declared(_OWN, "torchyard's own, see below")
    model_mount_path: None = refused("read the model's folder from `AZUREML_MODEL_DIR`")
    resources: None = refused("of Kubernetes; name a cluster: `torchyard: {cluster: …}`")

    @rule("tags")
    def _own_tags(self) -> None:
        settings.refuse_unknown_texts(self.tags, "tags")

    @rule("properties")
    def _own_properties(self) -> None:
        settings.refuse_unknown_texts(self.properties, "properties")

    @property
    def processes(self) -> int:
        """How many answer requests in an instance; 0 where what is written says nothing."""
        written = self.environment_variables.get(WORKERS)
        if written:
            return int(written) if written.isdecimal() and len(written) < 6 else 0
        return max(1, self.model.processes if self.model is not None else 1)

    @property
    def requests(self) -> RequestSettings:
        """With as many requests at once as there are processes, if nothing is said of them."""
        at_once = "max_concurrent_requests_per_instance"
        if at_once in self.request_settings.model_fields_set or self.processes < 2:
            return self.request_settings
        return self.request_settings.model_copy(update={at_once: min(self.processes, MOST_AT_ONCE)})

    @property
    def notices(self) -> tuple[str, ...]:
        """What has no effect here."""
        notices = []
        environment = self.environment if isinstance(self.environment, Mapping) else {}
        config = environment.get("inference_config")
        if config and InferenceConfig.read(config).has_port:
            notices.append(inference_config.NOTICE)
        if self.app_insights_enabled:
            notices.append(
                "`app_insights_enabled` has no effect: logs are in `yard online-deployment "
                "get-logs`"
            )
        requests = self.request_settings.max_concurrent_requests_per_instance
        processes = self.processes
        if processes and requests > processes:
            notices.append(
                f"an instance gets {requests} requests at once and has "
                f"{processes} {plural('process', processes)} to serve them: the others wait "
                f"in it. Write `environment_variables: {{{WORKERS}: {requests}}}`, or lower "
                "`max_concurrent_requests_per_instance`"
            )
        return tuple(notices)


def read(document: Any) -> DeploymentSpec:
    """Check a deployment file's mapping and give every key its default.

    Raises:
        InvalidSpec: the first thing that is wrong, with its place and the others.
    """
    written = settings.with_own_texts(document) if isinstance(document, Mapping) else document
    file = OnlineDeploymentFile.read(written)
    collector = file.data_collector
    return DeploymentSpec(
        **file.of_any,
        instance_type=file.instance_type,
        instance_count=file.instance_count,
        request_settings=file.requests,
        liveness_probe=file.liveness_probe,
        readiness_probe=file.readiness_probe,
        scale_settings=file.scale_settings,
        data_collector=None if collector is None else collector.collector,
        own_settings=file.torchyard,
        notices=file.notices,
    )
