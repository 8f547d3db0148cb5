"""The names of Horovod over torch.distributed: `import horovod.torch as hvd`.

Owns: nothing but the version; `horovod.torch` holds all that is served.
Leaves: other frameworks, which are refused by name.
Always: standard torch; no process of its own.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.28.1+torchyard"

_NOT_HERE = ("tensorflow", "keras", "mxnet", "spark", "ray", "elastic", "runner")


def __getattr__(name: str) -> Any:
    if name in _NOT_HERE:
        raise ImportError(
            f"horovod.{name} is not in torchyard's layer, which serves horovod.torch alone"
        )
    raise AttributeError(f"module 'horovod' has no attribute {name!r}")


def run(*arguments: Any, **more: Any) -> Any:
    raise NotImplementedError("horovod.run: torchyard starts the ranks itself; call the script")
