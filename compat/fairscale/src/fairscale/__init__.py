"""The names of fairscale that training scripts use, over torch's own.

Owns: the package's names and its version.
Leaves: optimizers to optim, wrappers to nn.
Always: what is not served raises with its name.
"""

from __future__ import annotations

from fairscale import nn, optim

__all__ = ["nn", "optim"]
__version__ = "0.4.13"
