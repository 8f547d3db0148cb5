"""What can't be rehearsed on a CPU, and the errors that say so.

Owns: the errors, the stand-ins for names that are refused, extensions with CUDA sources.
Leaves: what can be rehearsed to rehearsal_torch.py, rehearsal_cuda.py and rehearsal_groups.py.
Always: the message begins with `cannot be rehearsed on CPU:` and names what the script called;
no figure is made up.
"""

from __future__ import annotations

import functools

MYPY = False
if MYPY:
    from typing import Any

_PREFIX = "cannot be rehearsed on CPU: "


class CannotBeRehearsed(RuntimeError):
    """What the script asked for needs a GPU, and this is a rehearsal without one."""

    def __init__(self, subject: str) -> None:
        super().__init__(subject if subject.startswith(_PREFIX) else _PREFIX + subject)


class ModuleCannotBeRehearsed(CannotBeRehearsed, ImportError):
    """An ImportError, so that a library which can do without the module does."""

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name


def refusing(name: str, why: str) -> Any:
    """A function that refuses whatever it is called with."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise CannotBeRehearsed(f"`{name}`: {why}")

    refuse.__name__ = refuse.__qualname__ = name.rpartition(".")[2]
    refuse.__doc__ = f"Refused: {why}."
    return refuse


def refusing_class(name: str, why: str) -> Any:
    """A class that refuses to be made, and every name that is asked of it."""

    class Refusing(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            raise CannotBeRehearsed(f"`{name}`: {why}")

        def __getattr__(cls, attribute: str) -> Any:
            if attribute.startswith("__"):
                raise AttributeError(attribute)
            raise CannotBeRehearsed(f"`{name}.{attribute}`: {why}")

    return Refusing(name.rpartition(".")[2], (), {"__doc__": f"Refused: {why}."})


def refuse_cuda_extensions(module: Any) -> None:
    """`torch.utils.cpp_extension`: C++ is built, CUDA is not."""
    why = "kernels of your own in CUDA need a GPU and NVIDIA's compiler"

    def asks_for_cuda(kwargs: Any, sources: Any) -> bool:
        source_list = [sources] if isinstance(sources, str) else list(sources or ())
        return (
            bool(kwargs.get("with_cuda"))
            or bool(kwargs.get("cuda_sources"))
            or any(str(source).endswith((".cu", ".cuh")) for source in source_list)
        )

    def checked(name: str, original: Any, has_files: bool) -> Any:
        @functools.wraps(original)
        def build(*args: Any, **kwargs: Any) -> Any:
            sources = args[1] if len(args) > 1 else kwargs.get("sources")
            # `load_inline(name, cpp_sources, cuda_sources)` has texts, not files.
            inline = not has_files and len(args) > 2 and args[2]
            if inline or asks_for_cuda(kwargs, sources if has_files else ()):
                raise CannotBeRehearsed(f"`torch.utils.cpp_extension.{name}`: {why}")
            return original(*args, **kwargs)

        return build

    module.load = checked("load", module.load, True)
    module.load_inline = checked("load_inline", module.load_inline, False)
    module.CUDAExtension = refusing("torch.utils.cpp_extension.CUDAExtension", why)
