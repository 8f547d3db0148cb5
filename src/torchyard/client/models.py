"""Registered models of the workspace, over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchyard.base.errors import InvalidInput
from torchyard.client import resources as read
from torchyard.client.assets import Asset, DeletableAssets, asset_fields
from torchyard.client.resources import Json

if TYPE_CHECKING:
    from torchyard.client.endpoints.model_deployments import Deployer
    from torchyard.client.endpoints.online_deployments import OnlineDeployment
    from torchyard.client.endpoints.online_endpoints import OnlineEndpoint
    from torchyard.client.job import Job
    from torchyard.client.jobs import Jobs
    from torchyard.client.onnx.environments import ChosenEnvironment, Needs
    from torchyard.client.onnx.exports import OnnxExport, OnnxInput
    from torchyard.client.onnx.scoring import ModelAnswer
    from torchyard.client.snapshots.upload import Progress


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ModelTensor:
    """An input or output of a model.

    Args:
        dtype: such as `float32`; of a column of a table, MLflow's name of its type.
        shape: sizes, and the names of dynamic dimensions, "" for one without name; None for a
            column and where it is unknown.
        required: False for a column that may be missing.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None
    required: bool


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ModelSignature:
    """What a model takes and gives; `format` is `onnx` or `mlflow`."""

    format: str
    inputs: tuple[ModelTensor, ...]
    outputs: tuple[ModelTensor, ...]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Model(Asset):
    """One version of a registered model.

    Args:
        source: what it was registered from.
        job: the job that made it; empty for an upload.
        environment: that of the job, as a job file names it; empty for an upload.
        signature: of an ONNX or MLflow model that has one, else None.
    """

    source: str
    job: str
    environment: str | dict[str, Any]
    signature: ModelSignature | None


class Models(DeletableAssets[Model]):
    """Registered models.

    Example::

        path = f"azureml://jobs/{job.name}/outputs/artifacts/paths/outputs/model.pt"
        client.models.create({"name": "digits", "path": path})
    """

    kind = "models"
    noun = "model"

    def create(
        self,
        document: Mapping[str, Any],
        folder: Path | None = None,
        progress: Progress | None = None,
    ) -> Model:
        """Register a new version; a local folder is sent, and its name kept as in Azure.

        Args:
            document: `name`, `path`, and more, as in a model's file.
            folder: where relative paths begin, by default the current folder.
            progress: told how much of the files was sent.

        Raises:
            InvalidSpec: what is wrong, and where.
        """
        from torchyard.client.snapshots.local_paths import is_elsewhere, local_path

        path = document.get("path")
        if isinstance(path, str) and path and not is_elsewhere(path):
            source = local_path(path, folder or Path.cwd())
            if source.is_dir():
                # As in Azure, the model keeps the name of its folder.
                document = {**document, "folder": source.resolve().name}
        return super().create(document, folder, progress)

    def export_onnx(
        self,
        name: str,
        version: str = "latest",
        *,
        inputs: Sequence[str | OnnxInput] = (),
        example: str | Path | None = None,
        dynamic: Mapping[str, Sequence[int]] | None = None,
        output_names: Sequence[str] = (),
        opset: int | None = None,
        optimize: str = "",
        quantize: bool = False,
        tolerance: float = 1e-3,
        module: str = "",
        module_args: Mapping[str, Any] | None = None,
        allow_pickle: bool = False,
        register_as: str = "",
        environment: str = "",
        compute: str = "",
        timeout_s: float | None = None,
    ) -> Model:
        """Export a model to ONNX by a job, wait for it, and return the model that it registered.

        The job compares the answers of both for real and random inputs, at several batch sizes
        where dimension 0 is dynamic, and fails if one differs by more than `tolerance`.

        Args:
            inputs: each as `image=1,3,224,224/float32`; may be left out with an example.
            example: real values, as `.npy`, `.npz`, `.json` or `.csv`.
            dynamic: dynamic dimensions of each input, as `{"image": [0, 2, 3]}`; dimension 0 of
                all when None, none for `{}`.
            optimize: store the graph as ONNX Runtime optimizes it: basic, extended or all.
            quantize: store weights as 8-bit integers; the job prints what that costs.
            module: the file and class of a state dict, joined by `:`, made with `module_args`.
            allow_pickle: load a pickled module, which runs code that it holds.
            register_as: the new model's name; `<name>-onnx` when empty.
            environment: that of the model's job when empty, with what it lacks.
            timeout_s: how long to wait; None for as long as it takes.

        Raises:
            NotFound: the model does not exist.
            InvalidInput: an option can't be honoured, or no file can be exported.
            JobFailed: the export failed; the job's log says why.
            Timeout: the job goes on.

        Example::

            client.models.export_onnx("digits", inputs=["image=1,1,8,8/float32"])
        """
        from torchyard.client.onnx.exports import OnnxExport, read_input

        export = OnnxExport(
            tuple(read_input(entry) if isinstance(entry, str) else entry for entry in inputs),
            None if example is None else Path(example), dynamic, tuple(output_names), opset,
            optimize, quantize, tolerance, module, module_args or {}, allow_pickle, register_as,
            environment, compute,
        )  # fmt: skip
        job, _ = self.submit_onnx_export(name, version, export)
        return self.made_by(job.wait(timeout_s, check=True))

    def submit_onnx_export(self, name: str, version: str, export: OnnxExport) -> tuple[Job, str]:
        """Submit the job of `export_onnx`; returns it, and a notice about its environment.

        Raises:
            NotFound: the model does not exist.
            InvalidInput: an option can't be honoured, or no file can be exported.
        """
        from torchyard.client.onnx import exports

        model = self.get(name, version).raw
        exports.check(export, model)
        chosen = self._environment(model, exports.NEEDS, export.environment)
        with exports.job_document(export, model, chosen.environment) as document:
            return self._jobs().create(document), chosen.notice

    def score(
        self,
        name: str,
        version: str = "latest",
        *,
        input: str | Path | Mapping[str, Any],
        environment: str = "",
        compute: str = "",
        timeout_s: float | None = None,
    ) -> ModelAnswer:
        """Score an input by an ONNX model through ONNX Runtime, in a job, and return its outputs.

        A model without an ONNX file is scored by the newest ONNX model that was exported from it.

        Args:
            input: values by the names of the model's inputs, or a file: `.json` with
                `{"inputs": {name: values}}` or `{"data": values}`, `.csv`, `.npy` or `.npz`.
            environment: that of the model's job when empty, with `onnxruntime` if it lacks it.
            timeout_s: how long to wait; None for as long as it takes.

        Raises:
            NotFound: the model does not exist.
            InvalidInput: the model takes other input, or has no ONNX file.
            JobFailed: the job failed for another reason; its log says why.
            Timeout: the job goes on.

        Example::

            answer = client.models.score("digits-onnx", input={"data": images.tolist()})
            answer.outputs["output"]
        """
        job, _ = self.submit_score(
            name, version, input=input, environment=environment, compute=compute
        )
        return self.answer_of(job.wait(timeout_s))

    def submit_score(
        self,
        name: str,
        version: str,
        *,
        input: str | Path | Mapping[str, Any],
        environment: str = "",
        compute: str = "",
    ) -> tuple[Job, tuple[str, ...]]:
        """Submit the job of `score`; returns it, and notices about its model and environment.

        Raises:
            NotFound: the model does not exist.
            InvalidInput: the model takes other input, or has no ONNX file.
        """
        from torchyard.client.onnx import inputs, scoring

        notices: list[str] = []
        model: Mapping[str, Any] = self.get(name, version).raw
        if not scoring.is_onnx(model):
            source = scoring.title_of(model)
            listed = [*self.list(f"{model['name']}-onnx"), *self.list()]
            model = scoring.newest_export(model, (candidate.raw for candidate in listed))
            title = scoring.title_of(model)
            notices.append(f"`{source}` is scored by `{title}`, which was exported from it")
        request = inputs.read(input, scoring.tensors_of(model))
        chosen = self._environment(model, scoring.NEEDS, environment)
        notices += [chosen.notice] if chosen.notice else []
        with scoring.job_document(model, request, chosen.environment, compute) as document:
            return self._jobs().create(document), tuple(notices)

    def answer_of(self, job: Job) -> ModelAnswer:
        """What a job of `submit_score` has answered.

        Raises:
            InvalidInput: the input does not fit the model.
            JobFailed: the job failed for another reason.
        """
        from torchyard.client.job import JobFailed
        from torchyard.client.onnx import scoring

        model = job.tags.get("model", "")
        answer = scoring.answer_of(self._jobs().read_file, job.name, job.exit_code, model)
        if answer is None:
            raise JobFailed(job)
        return answer

    def _environment(
        self, model: Mapping[str, Any], needs: Needs, requested: str
    ) -> ChosenEnvironment:
        from torchyard.client.environments import Environments
        from torchyard.client.onnx import environments

        listed = Environments(self._transport, self._workspace_path, self._snapshots)
        return environments.choose(listed, model, needs, requested)

    def _jobs(self) -> Jobs:
        from torchyard.client.jobs import Jobs

        return Jobs(self._transport, self._workspace_path, self._snapshots)

    def made_by(self, job: Job) -> Model:
        """The model that a job's output was registered as.

        Raises:
            InvalidInput: the job registered none.
        """
        outputs = job.raw["spec"].get("outputs") or {}
        for output in outputs.values():
            name = (output or {}).get("name", "")
            models = [model for model in self.list(name) if model.job == job.name] if name else []
            if models:
                return models[0]
        raise InvalidInput(
            f"job `{job.name}` registered no model",
            f"its notices say why: `yard job show -n {job.name}`",
        )

    def deploy(
        self,
        name: str,
        version: str = "latest",
        *,
        endpoint: str = "",
        deployment: str = "blue",
        environment: str = "",
        code: str | Path = "",
        scoring_script: str = "score.py",
        instance_count: int = 1,
        wait: bool = True,
        tell: Callable[[OnlineDeployment], None] | None = None,
    ) -> OnlineEndpoint:
        """Deploy a model behind an endpoint, and return the endpoint once the model answers.

        ONNX files, exported programs and models of type mlflow_model need no scoring script. An
        endpoint of that name that is there keeps its other deployments, without traffic.

        Args:
            endpoint: its name; made from the model's when empty.
            environment: that of the model's job when empty.
            code: a folder with the file `scoring_script`.
            wait: False returns at once; the deployment gets no traffic then.
            tell: called with the deployment after each look at it.

        Raises:
            NotFound: the model does not exist.
            InvalidInput: the endpoint needs a name, or the model an environment.
            DeploymentFailed: it failed; the message says why.

        Example::

            client.models.deploy("digits-onnx")
            client.online_endpoints.invoke("digits-onnx", {"data": images.tolist()}).json()
        """
        from torchyard.client.endpoints.model_deployments import ModelDeployment

        options = ModelDeployment(
            endpoint, deployment, environment, str(code), scoring_script, instance_count
        )
        return self.deployer().deploy(self.get(name, version), options, wait, tell)[0]

    def deployer(self) -> Deployer:
        """What `deploy` uses, and `yard model deploy`, which shows the deployment as well."""
        from torchyard.client.endpoints.model_deployments import Deployer
        from torchyard.client.endpoints.online_deployments import OnlineDeployments
        from torchyard.client.endpoints.online_endpoints import OnlineEndpoints

        return Deployer(
            OnlineEndpoints(self._transport, self._workspace_path),
            OnlineDeployments(self._transport, self._workspace_path, self._snapshots),
            self._jobs(),
        )

    def _asset(self, raw: Json) -> Model:
        return Model(
            **asset_fields(raw),
            source=read.text(raw, "source"),
            job=read.text(raw, "job"),
            environment=raw.get("environment") or "",
            signature=_signature(raw.get("signature")),
        )


def _signature(raw: Json | None) -> ModelSignature | None:
    if not raw:
        return None
    inputs, outputs = (
        tuple(
            ModelTensor(
                name=tensor["name"],
                dtype=tensor["dtype"],
                shape=None if tensor["shape"] is None else tuple(tensor["shape"]),
                required=tensor.get("required", True),
            )
            for tensor in raw[key]
        )
        for key in ("inputs", "outputs")
    )
    return ModelSignature(format=raw["format"], inputs=inputs, outputs=outputs)
