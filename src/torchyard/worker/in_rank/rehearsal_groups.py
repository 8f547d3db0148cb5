"""Process groups of a rehearsal: gloo in place of NCCL.

Owns: the backend that a group gets, reductions that gloo lacks, meshes of devices.
Leaves: DistributedDataParallel to rehearsal_torch.py.
Always: a script sees the backend that it requested, torch the actual one; what gloo can't do, and
what only NCCL has, is refused by name.
"""

from __future__ import annotations

import functools

from .rehearsal_devices import Devices, asked_by_torch
from .rehearsal_limits import CannotBeRehearsed, refusing_class

MYPY = False
if MYPY:
    from typing import Any

_NO_NCCL = "options and handles of NCCL need NCCL"
# Those that some version of gloo in torch lacks.
_COLLECTIVES = """
    all_gather_into_tensor all_reduce_coalesced all_to_all all_to_all_single batch_isend_irecv
    gather reduce_scatter reduce_scatter_tensor reduce_scatter_single scatter send recv isend irecv
""".split()
# Where the operation stands among the arguments.
_REDUCTIONS = {
    "all_reduce": 1,
    "reduce": 2,
    "reduce_scatter": 2,
    "reduce_scatter_tensor": 2,
    "reduce_scatter_single": 2,
}


def apply(torch: Any, devices: Devices) -> None:
    """Change `torch.distributed`, where this torch has it."""
    distributed = torch.distributed
    if not distributed.is_available():
        return
    home = distributed.distributed_c10d

    def put(name: str, change: Any) -> None:
        original = getattr(home, name, None)
        if original is not None:
            changed = functools.wraps(original)(change(original))
            for module in (home, distributed):
                if hasattr(module, name):
                    setattr(module, name, changed)

    record = _RequestedBackends()
    for name in (
        "init_process_group",
        "new_group",
        "new_subgroups",
        "new_subgroups_by_enumeration",
    ):
        put(name, functools.partial(_beginning, record, devices, name))
    put("get_backend", functools.partial(_backend, record))
    put("is_nccl_available", _says_nccl)
    put("is_backend_available", _says_backend)
    put("barrier", _barrier)
    for name in _COLLECTIVES:
        put(name, functools.partial(_collective, name))
    for name, index in _REDUCTIONS.items():
        put(name, functools.partial(_reduction, distributed, index))
    distributed.ProcessGroupNCCL = refusing_class("torch.distributed.ProcessGroupNCCL", _NO_NCCL)


class _RequestedBackends:
    """Which backend the script asked for, by group; the default group is under None."""

    def __init__(self) -> None:
        self.backends: dict[Any, str] = {}


def _gloo(backend: Any) -> Any:
    return "gloo" if isinstance(backend, str) and "nccl" in backend.lower() else backend


def _beginning(record: _RequestedBackends, devices: Devices, name: str, original: Any) -> Any:
    index = {"init_process_group": 0, "new_group": 2, "new_subgroups": 3}.get(name, 2)

    def begin(*args: Any, **kwargs: Any) -> Any:
        backend = kwargs.get("backend", args[index] if len(args) > index else None)
        if kwargs.get("pg_options") is not None and "nccl" in str(backend).lower():
            raise CannotBeRehearsed(f"`pg_options` of `{name}`: {_NO_NCCL}")
        if "backend" in kwargs:
            kwargs["backend"] = _gloo(backend)
        elif len(args) > index:
            args = (*args[:index], _gloo(backend), *args[index + 1 :])
        if "device_id" in kwargs:
            devices.plain(kwargs.pop("device_id"))
        made = original(*args, **kwargs)
        if name == "init_process_group":
            # Without a name torch takes NCCL for tensors on GPUs, and says so.
            record.backends = {None: "nccl" if backend is None else str(backend).lower()}
        elif backend is not None:
            for group in made if isinstance(made, tuple) else [made]:
                record.backends[id(group)] = str(backend).lower()
        return made

    return begin


def _backend(record: _RequestedBackends, original: Any) -> Any:
    def get_backend(group: Any = None) -> Any:
        actual = original(group)
        if asked_by_torch():
            return actual
        key = None if group is None else id(group)
        backend = record.backends.get(key) or record.backends.get(None)
        is_nccl = backend and "nccl" in backend and ":" not in backend
        return type(actual)(backend) if is_nccl else actual

    return get_backend


def _says_nccl(original: Any) -> Any:
    return lambda: original() if asked_by_torch() else True


def _says_backend(original: Any) -> Any:
    def is_backend_available(backend: str) -> bool:
        return bool(original(backend if asked_by_torch() else _gloo(backend)))

    return is_backend_available


def _barrier(original: Any) -> Any:
    def barrier(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("device_ids", None)
        return original(*args[:2], **kwargs)

    return barrier


def _collective(name: str, original: Any) -> Any:
    def collective(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except (RuntimeError, NotImplementedError, ValueError) as error:
            if _lacks(str(error)):
                raise CannotBeRehearsed(
                    f"`torch.distributed.{name}`: gloo lacks it: {str(error)[:200]}"
                ) from error
            raise

    return collective


def _lacks(message: str) -> bool:
    lower = message.lower()
    return "gloo" in lower and any(
        word in lower for word in ("not support", "unsupported", "cannot use", "not implemented")
    )


def _reduction(distributed: Any, index: int, original: Any) -> Any:
    """The mean, which gloo lacks: the sum, divided by how many there are."""
    average = distributed.ReduceOp.AVG

    def reduce(*args: Any, **kwargs: Any) -> Any:
        op = kwargs.get("op", args[index] if len(args) > index else None)
        if op is None or op != average or asked_by_torch():
            return original(*args, **kwargs)
        waits = kwargs.pop("async_op", False)
        if "op" in kwargs:
            kwargs["op"] = distributed.ReduceOp.SUM
        else:
            args = (*args[:index], distributed.ReduceOp.SUM, *args[index + 1 :])
        original(*args, **kwargs)
        first: Any = args[0] if args else kwargs.get("tensor", kwargs.get("output"))
        first.div_(distributed.get_world_size(kwargs.get("group")))
        return _Done() if waits else None

    return reduce


class _Done:
    """Work that is over."""

    def wait(self, timeout: Any = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True


def change_meshes(module: Any) -> None:
    """`torch.distributed.device_mesh`: a mesh of GPUs is one of CPUs."""
    begin = getattr(module, "init_device_mesh", None)
    if begin is not None:

        @functools.wraps(begin)
        def init_device_mesh(device_type: str, *args: Any, **kwargs: Any) -> Any:
            return begin(_cpu(device_type), *args, **kwargs)

        module.init_device_mesh = init_device_mesh
    if hasattr(module, "DeviceMesh") and hasattr(module.DeviceMesh, "__init__"):
        make = module.DeviceMesh.__init__

        @functools.wraps(make)
        def init(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
            make(self, _cpu(device_type), *args, **kwargs)

        module.DeviceMesh.__init__ = init


def _cpu(device_type: str) -> str:
    return "cpu" if str(device_type).startswith("cuda") else device_type


def change_sharding(module: Any) -> None:
    """FullyShardedDataParallel: sharded over the CPUs of the ranks."""
    kind = module.FullyShardedDataParallel
    begin = kind.__init__

    @functools.wraps(begin)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("device_id") is not None:
            kwargs["device_id"] = module.torch.device("cpu")
        begin(self, *args, **kwargs)

    kind.__init__ = init
