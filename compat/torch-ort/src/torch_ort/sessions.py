"""A module as a session of ONNX Runtime that reads the module's own weights.

Owns: the export, which dimensions of inputs may vary, passing tensors in and out.
Leaves: whether the answers are right to inference.
Always: weights are those that the module has when a session is made; inputs and weights are not
copied on the CPU; results are tensors of the structure that the module returns.

Sources: https://docs.pytorch.org/docs/stable/onnx_export.html,
https://onnxruntime.ai/docs/api/python/api_summary.html
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import onnxruntime
import torch
from torch.utils import _pytree as pytree

from torch_ort.options import Options

# protobuf takes no longer messages.
_LARGEST = 1_900_000_000


class Session:
    """One exported graph, and a session of it for the weights of now."""

    def __init__(
        self,
        module: torch.nn.Module,
        inputs: tuple[Any, ...],
        keywords: Mapping[str, Any],
        expected: Any,
        options: Options,
    ) -> None:
        self._module = module
        self._options = options
        # What isn't a tensor is the same in every answer.
        self._results, self._structure = pytree.tree_flatten(expected)
        self._places = [i for i, leaf in enumerate(self._results) if _is_tensor(leaf)]
        self._results = [None if _is_tensor(leaf) else leaf for leaf in self._results]
        program = _program(module, inputs, keywords)
        proto = program.model_proto
        leaves = pytree.tree_leaves((inputs, dict(keywords)))
        self._given = [i for i, leaf in enumerate(leaves) if _is_tensor(leaf)]
        for values, positions, verb in (
            (proto.graph.input, self._given, "takes"),
            (proto.graph.output, self._places, "returns"),
        ):
            if len(values) != len(positions):
                raise ValueError(f"the graph {verb} {len(values)} of {len(positions)} tensors")
        self._inputs = [value.name for value in proto.graph.input]
        self._outputs = [value.name for value in proto.graph.output]
        self._weights = [weight.name for weight in proto.graph.initializer]
        self._graph: bytes = proto.SerializeToString()
        if len(self._graph) > _LARGEST:
            raise ValueError("its graph with its weights is longer than 1.9 GB")
        if options.saved is not None:
            options.saved.parent.mkdir(parents=True, exist_ok=True)
            options.saved.write_bytes(self._graph)
        self._session: Any = None
        self._held: list[Any] = []

    def forget_weights(self) -> None:
        self._session = None
        self._held = []

    def run(self, leaves: list[Any]) -> Any:
        """The answer to inputs, flattened as the example's were."""
        if self._session is None:
            self._session = self._open()
        values = [leaves[number].detach().contiguous() for number in self._given]
        device = values[0].device if values else torch.device("cpu")
        binding = self._session.io_binding()
        for name, value in zip(self._inputs, values):
            binding.bind_input(
                name, value.device.type, value.device.index or 0, _element(value.dtype),
                tuple(value.shape), value.data_ptr(),
            )  # fmt: skip
        for name in self._outputs:
            binding.bind_output(name, device.type, device.index or 0)
        if device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()
        self._session.run_with_iobinding(binding)
        results = list(self._results)
        for position, value in zip(self._places, binding.get_outputs()):
            results[position] = _tensor(value, device)
        return pytree.tree_unflatten(results, self._structure)

    def _open(self) -> Any:
        """A session whose weights are the module's own memory, or copies on a GPU."""
        options = onnxruntime.SessionOptions()
        options.log_severity_level = self._options.log_level
        options.intra_op_num_threads = torch.get_num_threads()
        state = {**dict(self._module.named_parameters()), **dict(self._module.named_buffers())}
        device = next((value.device for value in state.values()), torch.device("cpu"))
        for name in self._weights:
            if name in state:
                array = state[name].detach().cpu().contiguous().numpy()
                value = onnxruntime.OrtValue.ortvalue_from_numpy(array)
                self._held.append((array, value))
                options.add_initializer(name, value)
        providers: list[Any] = ["CPUExecutionProvider"]
        if device.type == "cuda":
            if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
                raise ValueError("this ONNX Runtime has no CUDA (install onnxruntime-gpu)")
            providers.insert(0, ("CUDAExecutionProvider", {"device_id": device.index or 0}))
        return onnxruntime.InferenceSession(self._graph, options, providers=providers)


def _program(module: torch.nn.Module, inputs: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
    """The exported module, with every dimension as free as it can be."""

    def free(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return None
        return {axis: torch.export.Dim.AUTO for axis in range(leaf.dim())}

    with _silent(), torch.inference_mode(False), torch.no_grad():
        # Copies: tensors of inference mode can't be exported.
        inputs, keywords = pytree.tree_map(_copied, (tuple(inputs), dict(keywords)))
        shapes = pytree.tree_map(free, (inputs, keywords))
        exported = torch.export.export(
            module, inputs, keywords, strict=False, dynamic_shapes=_by_argument(module, *shapes)
        )
        return torch.onnx.export(exported, (), dynamo=True, optimize=True, verbose=False)


def _by_argument(module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
    """Shapes by the names of forward's parameters where inputs are given by name, too."""
    if not kwargs:
        return args
    import inspect

    bound = inspect.signature(module.forward).bind(*args, **kwargs)
    return dict(bound.arguments)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Without what the exporter says of itself; the module's state is left alone."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings(), open(os.devnull, "w") as nowhere:
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        try:
            with contextlib.redirect_stdout(nowhere):
                yield
        finally:
            for logger, level in zip(loggers, levels):
                logger.setLevel(level)


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor)


def _copied(leaf: Any) -> Any:
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf


def _element(dtype: torch.dtype) -> Any:
    return torch.empty(0, dtype=dtype).numpy().dtype.type


def _tensor(value: Any, device: torch.device) -> torch.Tensor:
    """An output as a tensor of its own memory."""
    if device.type == "cpu":
        return torch.from_numpy(copy.copy(value.numpy()))
    return torch.utils.dlpack.from_dlpack(value)
