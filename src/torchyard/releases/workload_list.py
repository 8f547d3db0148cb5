"""The workloads that a validation can run.

Owns: their names, on how many nodes each runs, how long it may take, which a request selects.
Leaves: what each does to workloads/, running them to running/validation_jobs.py.
Always: a name stands for one function of one module of workloads/; a test says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchyard.base.errors import InvalidSpec, did_you_mean

ONE_NODE, TWO_NODES = 1, 2


@dataclass(frozen=True)
class Workload:
    """`module` and `function` are in workloads/, a user's module is a file's path; `limit_s` is for
    it alone.
    """

    name: str
    module: str
    function: str
    nodes: int = ONE_NODE
    limit_s: int = 300
    takes_requested: bool = False

    def to_json(self) -> dict[str, object]:
        return dict(vars(self))


def _of(module: str, *functions: str, nodes: int = ONE_NODE, limit_s: int = 300) -> list[Workload]:
    package = f"torchyard_validation.{module}"
    return [
        Workload(
            name.replace("_", "-"),
            package,
            name,
            nodes,
            limit_s,
            takes_requested=name == "requested_imports",
        )
        for name in functions
    ]


EXAMPLES = ("conda_file", "deepspeed", "digits", "horovod", "resumable", "sweep", "torchrun")
"""The folders of `examples/` that are workloads: those that download nothing and need no program
beside Python.
"""

WORKLOADS: tuple[Workload, ...] = (
    *_of(
        "basics",
        *("interpreter", "requested_imports", "numpy_algebra", "pandas_table", "sklearn_digits"),
        *("lightgbm_digits", "keras_digits", "mlflow_round_trip", "pyspark_session"),
    ),
    *_of(
        "training",
        *("checkpoint_resume", "compile_parity", "bf16_autocast", "gradient_accumulation"),
        *("optimizer_formula", "dataloader_workers", "profiler_trace", "tensorboard_round_trip"),
        *("nebula_checkpoint", "msccl_settings"),
    ),
    *_of("exports", "onnx_export", "onnxruntime_inference", "ortmodule_training", "torch_export"),
    *_of(
        "frameworks",
        *("lightning_fit", "bert_on_pairs", "gpt2_language_model", "accelerate_training"),
        *("torchmetrics_values", "torchvision_model", "timm_model"),
    ),
    # DeepSpeed compiles its transport over shared memory first, which takes a minute and more.
    *_of("examples", *(f"example_{name}" for name in EXAMPLES), limit_s=900),
    *_of(
        "two_nodes",
        *("ddp_digits", "ddp_parity", "deepspeed_zero1", "deepspeed_zero2", "deepspeed_zero3"),
        *("deepspeed_offload", "bert_with_deepspeed", "fsdp2", "tensor_parallel"),
        *("distributed_checkpoint", "horovod_training", "fairscale_oss", "ort_moe_experts"),
        nodes=TWO_NODES,
    ),
)


def of_user(names: Sequence[str]) -> tuple[Workload, ...]:
    """The workloads of a user's files `<name>.py`, each with a function `run`."""
    return tuple(Workload(name, f"own/{name}.py", "run") for name in names)


def selected(
    workloads: Sequence[Workload], only: Sequence[str], at: Sequence[str | int] = ("only",)
) -> tuple[Workload, ...]:
    """Those of these names, in the order of the table; all where none is named.

    Raises:
        InvalidSpec: there is none of that name, with the nearest.
    """
    names = [workload.name for workload in workloads]
    for position, name in enumerate(only):
        if name not in names:
            raise InvalidSpec(
                f"there is no workload `{name}`",
                did_you_mean(name, names),
                at=(*at, position),
            )
    return tuple(each for each in workloads if not only or each.name in only)
