"""Make torch take the CPU wherever a script names a GPU.

Owns: torch's tensors, factories, modules, loaders, files and automatic mixed precision.
Leaves: `torch.cuda` to rehearsal_cuda.py, `torch.distributed` to rehearsal_groups.py, what a
device means to rehearsal_devices.py.
Always: only functions that can be given a device are touched, so that the operations of a training
step cost what they cost without a rehearsal; inside torch every tensor is on the CPU; what slips
through all this fails by name in `_lazy_init`. Written for torch 2.0 and later: a name that a
version lacks is left out.
"""

from __future__ import annotations

import functools
import importlib

from . import rehearsal_cuda, rehearsal_groups
from .rehearsal_devices import Devices, asked_by_torch
from .rehearsal_limits import CannotBeRehearsed

MYPY = False
if MYPY:
    from typing import Any

# Functions of torch that make a tensor on a `device` they are given by name.
FACTORIES = """
    arange as_tensor asarray bartlett_window blackman_window empty empty_like empty_permuted
    empty_quantized empty_strided eye from_file full full_like hamming_window hann_window
    kaiser_window linspace logspace normal ones ones_like rand rand_like randint randint_like randn
    randn_like randperm range scalar_tensor sparse_bsc_tensor sparse_bsr_tensor
    sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor sparse_csr_tensor tensor
    tril_indices triu_indices zeros zeros_like
    fft.fftfreq fft.rfftfreq nested.nested_tensor nested.as_nested_tensor
    Tensor.new_empty Tensor.new_empty_strided Tensor.new_full Tensor.new_ones Tensor.new_tensor
    Tensor.new_zeros
""".split()
_LEGACY_TYPES = "Byte Char Double Float Half Int Long Short Bool BFloat16".split()


def apply(torch: Any) -> None:
    """Change torch, which was imported just now.

    Raises:
        CannotBeRehearsed: it is older than what this was written for.
    """
    if int(torch.__version__.partition(".")[0]) < 2:
        raise CannotBeRehearsed(f"torch {torch.__version__} is older than 2.0")
    devices = Devices(torch)
    _factories(torch, devices)
    _default_device(torch, devices)
    _tensors(torch, devices)
    _generators(torch, devices)
    _modules(torch, devices)
    _loaders(torch)
    _files(torch)
    _mixed_precision(torch)
    rehearsal_cuda.apply(torch, devices)
    rehearsal_groups.apply(torch, devices)


def _factories(torch: Any, devices: Devices) -> None:
    # torch keeps what it finds here at first; it must find its own functions, not ours.
    importlib.import_module("torch.utils._device")._device_constructors()
    scripted = getattr(torch.jit._builtins, "_builtin_table", None)
    plain = devices.plain

    def on_cpu(original: Any) -> Any:
        @functools.wraps(original)
        def made(*args: Any, **kwargs: Any) -> Any:
            if kwargs:
                if kwargs.get("device") is not None:
                    kwargs["device"] = plain(kwargs["device"])
                if kwargs.get("pin_memory"):
                    kwargs["pin_memory"] = False
            return original(*args, **kwargs)

        return made

    for name in FACTORIES:
        owner = torch
        *parents, last = name.split(".")
        for parent in parents:
            owner = getattr(owner, parent, None)
        if hasattr(owner, last):
            original = getattr(owner, last)
            setattr(owner, last, on_cpu(original))
            if scripted and id(original) in scripted:
                scripted[id(getattr(owner, last))] = scripted[id(original)]


def _default_device(torch: Any, devices: Devices) -> None:
    """`with torch.device("cuda")`, `torch.set_default_device` and the older tensor types."""
    context = importlib.import_module("torch.utils._device").DeviceContext
    begin = context.__init__
    set_device, set_type = torch.set_default_device, torch.set_default_tensor_type

    @functools.wraps(begin)
    def init(self: Any, device: Any) -> None:
        begin(self, devices.plain(device))

    context.__init__ = init

    @functools.wraps(set_device)
    def set_default_device(device: Any) -> None:
        set_device(devices.plain(device))

    torch.set_default_device = set_default_device

    @functools.wraps(set_type)
    def set_default_tensor_type(kind: Any) -> None:
        set_type(_plain_type(kind))

    torch.set_default_tensor_type = set_default_tensor_type
    for name in _LEGACY_TYPES:
        if hasattr(torch, f"{name}Tensor"):
            setattr(torch.cuda, f"{name}Tensor", getattr(torch, f"{name}Tensor"))


def _plain_type(kind: Any) -> Any:
    return kind.replace("torch.cuda.", "torch.") if isinstance(kind, str) else kind


def _tensors(torch: Any, devices: Devices) -> None:
    tensor, plain = torch.Tensor, devices.plain
    _moves(tensor, devices)
    pin, change_type = tensor.is_pinned, tensor.type

    def cuda(self: Any, device: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        plain(device)
        return self.to(devices.cpu, non_blocking=non_blocking, **kwargs) if kwargs else self

    def type(self: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        return change_type(self) if dtype is None else change_type(self, _plain_type(dtype))

    tensor.cuda = functools.wraps(tensor.cuda)(cuda)
    tensor.type = functools.wraps(change_type)(type)
    tensor.pin_memory = functools.wraps(tensor.pin_memory)(lambda self, device=None: self)
    tensor.is_pinned = functools.wraps(pin)(lambda self, device=None: False)
    tensor.record_stream = functools.wraps(tensor.record_stream)(lambda self, stream: None)
    _patch_device_attributes(torch, tensor, devices)
    for storage in ("UntypedStorage", "TypedStorage"):
        if hasattr(torch, storage):
            getattr(torch, storage).cuda = lambda self, device=None, non_blocking=False: self
            getattr(torch, storage).pin_memory = lambda self, device="cuda": self


def _moves(kind: Any, devices: Devices) -> None:
    """`to`, of a tensor or a module: the device comes first or by name."""
    move, plain = kind.to, devices.plain

    @functools.wraps(move)
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args:
            args = (plain(args[0]), *args[1:])
        if kwargs.get("device") is not None:
            kwargs["device"] = plain(kwargs["device"])
        return move(self, *args, **kwargs)

    kind.to = to


def _patch_device_attributes(torch: Any, tensor: Any, devices: Devices) -> None:
    """What a tensor says of its device: the truth to torch, to scripts the GPU that they named."""
    base = torch._C._TensorBase if hasattr(torch._C, "_TensorBase") else torch._C.TensorBase
    device, is_cuda, is_cpu = base.device, base.is_cuda, base.is_cpu
    number = tensor.get_device

    def device_of(self: Any) -> Any:
        actual = device.__get__(self)
        return actual if actual.type != "cpu" or asked_by_torch() else devices.device_for_script()

    def says_cuda(self: Any) -> bool:
        return bool(is_cuda.__get__(self) if asked_by_torch() else is_cpu.__get__(self))

    def says_cpu(self: Any) -> bool:
        return bool(is_cpu.__get__(self)) and asked_by_torch()

    def get_device(self: Any) -> int:
        actual: int = number(self)
        return actual if actual >= 0 or asked_by_torch() else devices.current

    tensor.device = property(device_of, doc=device.__doc__)
    tensor.is_cuda = property(says_cuda, doc=is_cuda.__doc__)
    tensor.is_cpu = property(says_cpu, doc=is_cpu.__doc__)
    tensor.get_device = functools.wraps(number)(get_device)


def _generators(torch: Any, devices: Devices) -> None:
    original = torch.Generator

    class Generators(type):
        """Stands for `torch.Generator`, which is a type of C that can't be changed."""

        def __call__(cls, device: Any = "cpu") -> Any:
            return original(device=devices.plain(device))

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, original)

    torch.Generator = Generators("Generator", (), {"__doc__": original.__doc__})


def _modules(torch: Any, devices: Devices) -> None:
    _moves(torch.nn.Module, devices)
    several = torch.nn.parallel.data_parallel
    # One process with many GPUs: on a CPU it runs the module as it is.
    several._get_available_device_type = lambda: None
    distributed = torch.nn.parallel.DistributedDataParallel
    begin = distributed.__init__

    @functools.wraps(begin)
    def init(
        self: Any,
        module: Any,
        device_ids: Any = None,
        output_device: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        for device in (*(device_ids or ()), output_device):
            devices.plain(device)
        begin(self, module, None, None, *args, **kwargs)

    distributed.__init__ = init
    _synchronized(torch)


def _synchronized(torch: Any) -> None:
    """Batch norm over all ranks; torch has it for GPUs only."""
    kind = torch.nn.SyncBatchNorm
    forward = kind.forward

    @functools.wraps(forward)
    def synchronized(self: Any, input: Any) -> Any:
        together = torch.distributed.is_available() and torch.distributed.is_initialized()
        if self.training and together and torch.distributed.get_world_size() > 1:
            raise CannotBeRehearsed("`torch.nn.SyncBatchNorm`: torch has it for GPUs only")
        # With one rank, and for evaluation, it is the plain one.
        return torch.nn.BatchNorm2d.forward(self, input)

    kind.forward = synchronized


def _loaders(torch: Any) -> None:
    loader = torch.utils.data.DataLoader
    begin = loader.__init__

    @functools.wraps(begin)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        self.pin_memory = False
        self.pin_memory_device = ""

    loader.__init__ = init


def _files(torch: Any) -> None:
    """What was saved on a GPU, or shall be loaded onto one, lies on the CPU."""

    def restore(storage: Any, location: str) -> Any:
        return storage if location.startswith("cuda") else None

    # Before torch's own for the CPU, which has 10.
    torch.serialization.register_package(5, lambda storage: None, restore)


def _mixed_precision(torch: Any) -> None:
    context = torch.autocast
    begin = context.__init__

    @functools.wraps(begin)
    def init(self: Any, device_type: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        if str(device_type).startswith("cuda"):
            device_type = "cpu"
            dtype = dtype or torch.get_autocast_gpu_dtype()
        begin(self, device_type, dtype, *args, **kwargs)

    context.__init__ = init
    _autocast_answers(torch)
    _scalers(torch)
    for name in ("custom_fwd", "custom_bwd"):
        general = getattr(torch.amp, name, None)
        if general is not None:
            setattr(torch.amp, name, _for_cpu(general))
            setattr(torch.cuda.amp, name, functools.partial(general, device_type="cpu"))


def _for_cpu(decorate: Any) -> Any:
    @functools.wraps(decorate)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        if str(kwargs.get("device_type", "")).startswith("cuda"):
            kwargs["device_type"] = "cpu"
        return decorate(*args, **kwargs)

    return decorated


def _autocast_answers(torch: Any) -> None:
    is_enabled, get_type = torch.is_autocast_enabled, getattr(torch, "get_autocast_dtype", None)

    def is_autocast_enabled(device_type: Any = "cuda") -> bool:
        if asked_by_torch():
            return bool(is_enabled() if device_type == "cuda" else is_enabled(device_type))
        if get_type is None:  # torch before 2.4, which has a function for each device.
            return bool(torch.is_autocast_cpu_enabled() if device_type == "cuda" else is_enabled())
        return bool(is_enabled("cpu" if device_type == "cuda" else device_type))

    torch.is_autocast_enabled = functools.wraps(is_enabled)(is_autocast_enabled)
    if get_type is not None:

        def get_autocast_dtype(device_type: Any) -> Any:
            on_gpu = device_type == "cuda" and not asked_by_torch() and is_autocast_enabled()
            return get_type("cpu" if on_gpu else device_type)

        torch.get_autocast_dtype = functools.wraps(get_type)(get_autocast_dtype)


def _scalers(torch: Any) -> None:
    general = getattr(torch.amp, "GradScaler", None)
    if general is None:
        return  # torch before 2.3 has it for GPUs only, and turns it off by itself.
    begin = general.__init__

    @functools.wraps(begin)
    def init(self: Any, device: Any = "cuda", *args: Any, **kwargs: Any) -> None:
        begin(self, "cpu" if str(device).startswith("cuda") else device, *args, **kwargs)

    general.__init__ = init
