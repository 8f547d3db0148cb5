"""What `torch.cuda` and `torch.accelerator` answer in a rehearsal.

Owns: GPUs that seem to be there, their streams and events, what is refused by name.
Leaves: tensors to rehearsal_torch.py.
Always: whatever is public in `torch.cuda` is answered as a GPU's, does nothing because there is
nothing to do, or is refused; a name of a later torch that is not known here is refused. torch
itself is told that there is no GPU.
"""

from __future__ import annotations

import functools
import time

from .rehearsal_devices import Devices, asked_by_torch
from .rehearsal_limits import CannotBeRehearsed, refusing, refusing_class

MYPY = False
if MYPY:
    from typing import Any

# There is nothing to wait for, to seed or to free: the CPU's own generator is the one in use.
_NOTHING = """
    synchronize empty_cache ipc_collect init manual_seed manual_seed_all seed seed_all
    set_rng_state set_rng_state_all reset_peak_memory_stats reset_max_memory_allocated
    reset_max_memory_cached reset_accumulated_memory_stats reset_peak_host_memory_stats
    reset_accumulated_host_memory_stats set_per_process_memory_fraction set_sync_debug_mode
    set_stream
""".split()
_MEMORY = """
    memory_allocated max_memory_allocated memory_reserved max_memory_reserved memory_cached
    max_memory_cached memory_stats memory_stats_as_nested_dict memory_summary memory_snapshot
    mem_get_info host_memory_stats host_memory_stats_as_nested_dict list_gpu_processes memory_usage
    device_memory_used get_per_process_memory_fraction _record_memory_history _snapshot
    _dump_snapshot get_memory_info
""".split()
_GRAPHS = "CUDAGraph graph make_graphed_callables graph_pool_handle Graph".split()
_SENSORS = "utilization temperature power_draw clock_rate".split()
_WHY = {
    **dict.fromkeys(_MEMORY, "it tells of a GPU's memory, and there is none"),
    **dict.fromkeys(_GRAPHS, "CUDA graphs run on a GPU only"),
    **dict.fromkeys(_SENSORS, "it reads a GPU's sensors"),
}
_WHY_NOT_ELSE = "it needs a GPU"
# Stands for a GPU of NVIDIA's Ampere, the first that has bfloat16 as the CPU does.
_CAPABILITY = (8, 0)


def apply(torch: Any, devices: Devices) -> None:
    """Change `torch.cuda` and what hangs below it."""
    cuda = torch.cuda
    answers = {
        **_availability(cuda, devices),
        **_identity(torch, devices),
        **_generators(torch, devices),
        **_contexts(devices),
        **streams(torch, devices),
    }
    for name in _NOTHING:
        answers[name] = functools.partial(_nothing, devices)
    _put(cuda, "torch.cuda", answers)
    _put(cuda.memory, "torch.cuda.memory", answers)
    # What slips past all of this ends here, and not in a message of NVIDIA's driver.
    cuda._lazy_init = _slipped_through
    cuda.default_generators = (torch.default_generator,) * devices.count
    _below(torch)
    if hasattr(torch, "accelerator"):
        _accelerator(torch, devices, answers)


def _put(module: Any, called: str, answers: Any) -> None:
    names = (*answers, *_NOTHING, *_WHY)
    public = [name for name in getattr(module, "__all__", ()) if hasattr(module, name)]
    for name in {*public, *(name for name in names if hasattr(module, name))}:
        original = getattr(module, name)
        if name in answers:
            setattr(module, name, answers[name])
        elif isinstance(original, type) and _is_storage_or_error(name):
            continue
        elif callable(original):
            why = _WHY.get(name, _WHY_NOT_ELSE)
            stand_in = refusing_class if isinstance(original, type) else refusing
            setattr(module, name, stand_in(f"{called}.{name}", why))


def _is_storage_or_error(name: str) -> bool:
    return name.endswith(("Storage", "Tensor", "Error"))


def _nothing(devices: Devices, *args: Any, **kwargs: Any) -> None:
    """Done at once."""


def _slipped_through() -> None:
    raise CannotBeRehearsed(
        "a cuda device came to torch on a way that the rehearsal does not know; the call is above"
    )


def _availability(cuda: Any, devices: Devices) -> dict[str, Any]:
    """Scripts see GPUs, torch itself none."""

    def answer_scripts(name: str, answer: Any) -> Any:
        original = getattr(cuda, name)

        @functools.wraps(original)
        def ask(*args: Any, **kwargs: Any) -> Any:
            return original(*args, **kwargs) if asked_by_torch() else answer

        return ask

    answers = {
        "is_available": True,
        "device_count": devices.count,
        "is_initialized": True,
        "is_bf16_supported": True,
        "is_tf32_supported": False,
    }
    return {name: answer_scripts(name, answers[name]) for name in answers if hasattr(cuda, name)}


def _identity(torch: Any, devices: Devices) -> dict[str, Any]:
    def current_device() -> int:
        return devices.current

    def set_device(device: Any) -> None:
        index = devices.index_of(device)
        devices.note(index)

    def get_device_name(device: Any = None) -> str:
        return f"CPU in place of cuda:{devices.index_of(device)} (rehearsal)"

    def get_device_capability(device: Any = None) -> tuple[int, int]:
        devices.index_of(device)
        return _CAPABILITY

    def get_device_properties(device: Any = None) -> Any:
        return _Properties(get_device_name(device))

    return {
        "current_device": current_device,
        "set_device": set_device,
        "get_device_name": get_device_name,
        "get_device_capability": get_device_capability,
        "get_device_properties": get_device_properties,
        "get_arch_list": lambda: [],
        "get_gencode_flags": lambda: "",
        "can_device_access_peer": lambda device, peer: False,
        "get_sync_debug_mode": lambda: 0,
        "is_current_stream_capturing": lambda: False,
    }


class _Properties:
    """Of a GPU that seems to be there: its name, and nothing that would have to be made up."""

    major, minor = _CAPABILITY

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise CannotBeRehearsed(
            f"`torch.cuda.get_device_properties(…).{name}`: there is no GPU that has it"
        )

    def __repr__(self) -> str:
        return f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor})"


def _generators(torch: Any, devices: Devices) -> dict[str, Any]:
    return {
        "get_rng_state": lambda device="cuda": torch.get_rng_state(),
        "get_rng_state_all": lambda: [torch.get_rng_state()] * devices.count,
        "initial_seed": lambda: torch.initial_seed(),
    }


def _contexts(devices: Devices) -> dict[str, Any]:
    class device:
        """`with torch.cuda.device(1):`"""

        def __init__(self, device: Any) -> None:
            self.idx = devices.index_of(device)
            self.prev_idx = -1

        def __enter__(self) -> None:
            self.prev_idx = devices.current
            devices.note(self.idx)

        def __exit__(self, *details: Any) -> None:
            devices.note(self.prev_idx)

    class device_of(device):
        def __init__(self, obj: Any) -> None:
            super().__init__(None)

    return {"device": device, "device_of": device_of}


class Event:
    """Takes the time, if asked for."""

    def __init__(self, enable_timing: bool = False, **kwargs: Any) -> None:
        self._timed = enable_timing
        self._at_s = 0.0

    def record(self, stream: Any = None) -> None:
        self._at_s = time.perf_counter()

    def wait(self, stream: Any = None) -> None:
        pass

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: Any) -> float:
        if not (self._timed and end._timed and self._at_s and end._at_s):
            raise RuntimeError("both events must be recorded, and made with enable_timing=True")
        return float(end._at_s - self._at_s) * 1e3


class StreamContext:
    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        pass

    def __exit__(self, *details: Any) -> None:
        pass


def streams(torch: Any, devices: Devices) -> dict[str, Any]:
    """Work is done when it is given, so that streams have nothing to wait for."""

    class Stream:
        def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
            self.device_index = devices.index_of(device)
            self.device = torch.device("cuda", self.device_index)
            self.priority = priority
            self.cuda_stream = self.stream_id = 0

        def query(self) -> bool:
            return True

        def synchronize(self) -> None:
            pass

        def wait_event(self, event: Any) -> None:
            pass

        def wait_stream(self, stream: Any) -> None:
            pass

        def record_event(self, event: Any = None) -> Any:
            event = event or Event()
            event.record(self)
            return event

    _count_as_torchs(torch, Stream)
    return {
        "Stream": Stream,
        "Event": Event,
        "StreamContext": StreamContext,
        "stream": StreamContext,
        "current_stream": Stream,
        "default_stream": Stream,
    }


def _count_as_torchs(torch: Any, stream: Any) -> None:
    """torch 2.1 to 2.3 ask of what class they are when they import their compiler."""
    bases = getattr(torch, "_streambase", None)
    for name, stand_in in (("_StreamBase", stream), ("_EventBase", Event)):
        register = getattr(getattr(bases, name, None), "register", None)
        if register:
            register(stand_in)


def _below(torch: Any) -> None:
    """Modules of `torch.cuda` that are of use on a GPU alone."""
    cuda = torch.cuda
    marks = dict.fromkeys(("range_push", "range_pop", "range_start", "range_end", "mark"), _mark)
    _put(cuda.nvtx, "torch.cuda.nvtx", {**marks, "range": _Range})
    _put(cuda.profiler, "torch.cuda.profiler", {"start": _mark, "stop": _mark, "profile": _Range})
    why = {
        "nccl": (
            "all_reduce broadcast reduce all_gather reduce_scatter version init_rank unique_id",
            "NCCL runs between GPUs only",
        ),
        "comm": (
            "broadcast broadcast_coalesced reduce_add reduce_add_coalesced scatter gather",
            "it copies between the GPUs of one process",
        ),
        "jiterator": ("_create_jit_fn _create_multi_output_jit_fn", "it compiles CUDA kernels"),
    }
    for name, (functions, reason) in why.items():
        # `torch.cuda.comm` is imported when it is asked for, and takes all from the other.
        module = torch.nn.parallel.comm if name == "comm" else getattr(cuda, name, None)
        for function in functions.split():
            if hasattr(module, function):
                setattr(module, function, refusing(f"torch.cuda.{name}.{function}", reason))
    if hasattr(cuda, "_compile_kernel"):
        cuda._compile_kernel = refusing("torch.cuda._compile_kernel", "it compiles CUDA kernels")


def _mark(*args: Any, **kwargs: Any) -> int:
    """A mark for NVIDIA's profiler, which is not there; 0 is how deep it nests."""
    return 0


class _Range:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *details: Any) -> None:
        pass

    def __call__(self, function: Any) -> Any:
        return function


def _accelerator(torch: Any, devices: Devices, answers: dict[str, Any]) -> None:
    """The newer module in which a GPU has no maker's name; torch itself is told the truth."""
    module = torch.accelerator
    replacements = {
        "is_available": lambda *args: True,
        "device_count": lambda: devices.count,
        "current_accelerator": lambda check_available=False: torch.device("cuda"),
        "current_device_index": answers["current_device"],
        "current_device_idx": answers["current_device"],
        "set_device_index": answers["set_device"],
        "set_device_idx": answers["set_device"],
        "device_index": answers["device"],
        "current_stream": answers["current_stream"],
        "get_device_capability": answers["get_device_capability"],
        "empty_host_cache": answers["empty_cache"],
        **{name: answers[name] for name in _NOTHING},
    }

    def answer_scripts(name: str, original: Any, answer: Any) -> Any:
        @functools.wraps(original)
        def ask(*args: Any, **kwargs: Any) -> Any:
            return (original if asked_by_torch() else answer)(*args, **kwargs)

        return ask

    for name in module.__all__:
        if hasattr(module, name):
            why = _WHY.get(name, _WHY_NOT_ELSE)
            answer = replacements.get(name) or refusing(f"torch.accelerator.{name}", why)
            setattr(module, name, answer_scripts(name, getattr(module, name), answer))
