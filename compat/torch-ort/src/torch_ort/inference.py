"""Answers of a module in eval mode by ONNX Runtime.

Owns: when a session answers: for inputs that were compared with the module's own answer, for the
weights that the session holds, and when it was measured to be no slower.
Leaves: exporting and the session to sessions.
Always: a call that the session must not answer goes to the module: with gradients, under autocast,
with a part in training mode, with hooks, for inputs whose answers differ.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_ort import tensors
from torch_ort.notices import Notices, reason
from torch_ort.options import Options
from torch_ort.weights import Weights

# Inputs of so many kinds are exported separately; more go to the module.
_EXPORTS = 4
_NEEDED = ("onnx", "onnxscript", "onnxruntime")


class InferenceRunner:
    """Runs one module without gradients."""

    def __init__(self, module: torch.nn.Module, options: Options, notices: Notices) -> None:
        self._module = module
        self._options = options
        self._notices = notices
        self._is_off = options.inference == "eager"
        self._sessions: list[Any] = []
        self._by_inputs: dict[Any, Any] = {}
        self._is_measured = options.inference != "auto"
        self._order = list(inspect.signature(module.forward).parameters)
        self._exports = 0
        self._weights = Weights(module)

    def __call__(self, inputs: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        if self._is_off or not self._is_due():
            return self._module(*inputs, **keywords)
        # In the order in which exported graphs take them.
        keywords = dict(sorted(keywords.items(), key=lambda item: self._index_of(item[0])))
        leaves, structure = pytree.tree_flatten((inputs, keywords))
        key = (str(structure), tuple(map(_kind, leaves)))
        if key not in self._by_inputs:
            return self._first(key, inputs, keywords, leaves)
        session = self._by_inputs[key]
        if session is None:
            return self._module(*inputs, **keywords)
        try:
            return session.run(leaves)
        except Exception as error:  # Whatever it is: the module itself can answer.
            self._by_inputs[key] = None
            self._notices.say(f"is answered by torch for these inputs: {reason(error)}")
            return self._module(*inputs, **keywords)

    def _index_of(self, name: str) -> int:
        return self._order.index(name) if name in self._order else len(self._order)

    def _is_due(self) -> bool:
        """Whether a session may answer: not in the first call with these weights."""
        if any(part.training for part in self._module.modules()) or _is_autocast():
            return False
        if not self._weights.are_new():
            return True
        # New weights: sessions take them over when they are asked next.
        self._by_inputs = {key: None for key in self._by_inputs if self._by_inputs[key] is None}
        for session in self._sessions:
            session.forget_weights()
        return False

    def _first(
        self, key: Any, inputs: tuple[Any, ...], keywords: Mapping[str, Any], leaves: list[Any]
    ) -> Any:
        """The module's answer to inputs of a new kind; decides who answers the next ones."""
        expected = self._module(*inputs, **keywords)
        self._by_inputs[key] = None
        obstacle = self._obstacle(leaves)
        if obstacle:
            self._turn_off(obstacle)
            return expected
        why = ""
        for session in (*self._sessions, None):
            try:
                session = session or self._export(inputs, keywords, expected)
                if session is None:
                    break
                why = tensors.difference(session.run(leaves), expected)
            except Exception as error:  # An exporter fails in any way.
                why = reason(error)
                continue
            if not why:
                self._accept(key, session, inputs, keywords, leaves)
                return expected
        if why:
            self._notices.say(f"is answered by torch for these inputs: {why}")
        return expected

    def _accept(
        self,
        key: Any,
        session: Any,
        inputs: tuple[Any, ...],
        keywords: Mapping[str, Any],
        leaves: list[Any],
    ) -> None:
        """Let the session answer these inputs; measured once, because that takes some calls."""
        measured = ""
        if not self._is_measured:
            self._is_measured = True
            theirs, module_s = tensors.alternate(
                lambda: session.run(leaves), lambda: self._module(*inputs, **keywords)
            )
            if theirs > module_s:
                self._turn_off(f"ONNX Runtime takes {theirs / module_s:.2f} times as long")
                return
            measured = f", in {theirs / module_s:.2f} of its time"
        self._by_inputs[key] = session
        self._notices.say(
            "is answered by ONNX Runtime in eval mode without gradients, with the same results as "
            f"torch's (within {tensors.TOLERANCE:g}){measured}"
        )

    def _export(self, inputs: tuple[Any, ...], keywords: Mapping[str, Any], expected: Any) -> Any:
        """A new session, or None if there are enough."""
        if self._exports == _EXPORTS:
            self._notices.say(
                f"is answered by torch for inputs of further kinds: {_EXPORTS} were exported"
            )
            return None
        self._exports += 1
        from torch_ort.sessions import Session

        session = Session(self._module, inputs, keywords, expected, self._options)
        self._sessions.append(session)
        return session

    def _obstacle(self, leaves: list[Any]) -> str:
        missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            return f"{', '.join(missing)} is not installed"
        values = [
            *tensors.states(self._module),
            *(leaf for leaf in leaves if isinstance(leaf, torch.Tensor)),
        ]
        types = {
            value.dtype for value in values if value.dtype in (torch.bfloat16, torch.complex64)
        }
        if types:
            return f"{types.pop()} is not exported"
        if len({value.device for value in values}) > 1:
            return "its weights and inputs lie on several devices"
        return tensors.obstacle(self._module)

    def _turn_off(self, why: str) -> None:
        self._is_off = True
        self._notices.say(f"is answered by torch: {why}")


def _kind(leaf: Any) -> Any:
    """What inputs must have in common to be answered by the same session."""
    if isinstance(leaf, torch.Tensor):
        return (tuple(leaf.shape), leaf.dtype, leaf.device)
    return (type(leaf), repr(leaf))


def _is_autocast() -> bool:
    try:
        return torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
    except TypeError:  # torch before 2.4
        return torch.is_autocast_enabled() or torch.is_autocast_cpu_enabled()
