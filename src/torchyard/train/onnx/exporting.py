"""From a module to an ONNX file whose answers were compared with the module's.

Owns: which dimensions are dynamic, the order of the steps, what the file says of itself.
Leaves: comparing to parity, ONNX Runtime's tools to onnx_files, loading models to loading.
Always: the folder gets the file only if every difference is within the tolerance; the module is
left as it was, in its own mode and on its own device.

Source: https://docs.pytorch.org/docs/stable/onnx_export.html
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch

from torchyard.train.onnx import onnx_files, parity, tensors
from torchyard.train.onnx.errors import ExportError
from torchyard.train.onnx.onnx_files import LEVELS
from torchyard.train.onnx.parity import Difference, OnnxSession, Outputs
from torchyard.train.onnx.tensors import Tensors

Example: TypeAlias = torch.Tensor | Sequence[torch.Tensor] | Mapping[str, torch.Tensor]
Dynamic = Mapping[str, Sequence[int]]

_OPSETS = range(18, 24)
_NOISY = ("torch.onnx", "torch.fx.experimental.symbolic_shapes", "onnxscript", "onnx_ir", "root")
# A trace fixes sizes of 0 and 1, so that the example of an export has more rows.
_FEWEST_ROWS = 2


@dataclass(frozen=True)
class Report:
    """What was exported.

    `differences` are those of the file in `file`, `quantized` those that quantization cost, empty
    without it; `module_ms` and `onnx_ms` are the fastest calls for the example on this
    machine's CPU.
    """

    file: Path
    opset: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    differences: tuple[Difference, ...]
    quantized: tuple[Difference, ...]
    module_ms: float
    onnx_ms: float

    @property
    def max_difference(self) -> float:
        return parity.worst(self.differences).maximum


@dataclass(frozen=True)
class Options:
    """How to export.

    `dynamic` holds the dynamic dimensions of each input; None makes dimension 0 of all of them
    dynamic, an empty mapping none. `is_example_real` is False for drawn values. `source` is what
    the file says it was made of.
    """

    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    dynamic: Dynamic | None = None
    opset: int | None = None
    optimize: str = ""
    quantize: bool = False
    tolerance: float = parity.TOLERANCE
    is_example_real: bool = True
    source: str = ""


def export(
    module: torch.nn.Module,
    example: Example,
    folder: str | os.PathLike[str],
    *,
    input_names: Sequence[str] = (),
    output_names: Sequence[str] = (),
    dynamic: Dynamic | None = None,
    opset: int | None = None,
    optimize: str = "",
    quantize: bool = False,
    tolerance: float = parity.TOLERANCE,
    say: Callable[[str], None] = print,
) -> Report:
    """Write `folder/model.onnx`, after its answers were compared with those of the module.

    Compared are the example and random values, at several batch sizes where dimension 0 is dynamic.

    Args:
        module: runs in evaluation mode, on the CPU.
        example: a tensor, a sequence of them, or one for each name of an input; any shape.
        input_names: of the file; those of `forward` when left out.
        dynamic: the dynamic dimensions of each input, as `{"image": [0, 2, 3]}`; dimension 0 of
            every input when None, none for `{}`.
        opset: the version of the standard operators; torch's default when None.
        optimize: store the graph as ONNX Runtime optimizes it: `basic`, `extended` or `all`.
        quantize: store weights as 8-bit integers; what that costs is printed, and not limited.
        tolerance: the largest difference; relative to an output's largest value above 1.
        say: called with each line of the report.

    Raises:
        ExportError: the module can't be exported, or a difference is above the tolerance.
    """
    options = Options(
        tuple(input_names), tuple(output_names), dynamic, opset, optimize, quantize, tolerance
    )
    check(options)
    values = _named_example(module, example, options.input_names)
    moved = _on_cpu(module)
    with moved as cpu_module:
        return export_values(cpu_module, values, Path(folder), options, say)


def check(options: Options) -> None:
    """
    Raises:
        ExportError: an option has a value that it can't have.
    """
    if options.optimize and options.optimize not in LEVELS:
        raise ExportError(
            f"`{options.optimize}` is not a level of ONNX Runtime's optimization",
            f"use one of: {', '.join(LEVELS)}",
        )
    if options.opset is not None and options.opset not in _OPSETS:
        raise ExportError(
            f"opset {options.opset} can't be exported",
            f"use {_OPSETS.start} to {_OPSETS.stop - 1}, or leave it out",
        )
    if not options.tolerance > 0:
        raise ExportError(f"the tolerance {options.tolerance} is not above 0")


def export_values(
    module: Any, values: Tensors, folder: Path, options: Options, say: Callable[[str], None] = print
) -> Report:
    """As `export`, for what loading can load: a module, a program or a script, on the CPU."""
    _check_dynamic(options.dynamic, values)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".onnx-", dir=folder) as unfinished, _quiet():
        file = Path(unfinished) / "model.onnx"
        run = _run_of(module, values)
        _write(module, values, file, options, run)
        session = _loaded(file)
        differences = _compared(run, session, session, values, options)
        _report(differences, options, say, "ONNX Runtime beside the module")
        quantized: list[Difference] = []
        if options.quantize:
            exact = Path(unfinished) / "exact.onnx"
            shutil.copyfile(file, exact)
            quantized = _quantize(file, run, session, values, options, say)
        if options.optimize:
            onnx_files.optimize(file, options.optimize)
            say(f"The graph is stored as ONNX Runtime optimizes it at level {options.optimize}.")
        final = OnnxSession(file)
        if options.optimize and not quantized:
            differences = _compared(run, final, final, values, options)
            _report(differences, options, say, "The optimized file beside the module")
        module_ms, onnx_ms = parity.fastest_ms(run, values), parity.fastest_ms(final, values)
        metadata = _metadata(options, differences, quantized, module_ms, onnx_ms)
        opset = onnx_files.describe(file, metadata, _axis_name)
        (Path(unfinished) / "exact.onnx").unlink(missing_ok=True)
        for part in sorted(Path(unfinished).iterdir(), key=lambda part: part.name == file.name):
            os.replace(part, folder / part.name)
    names = tuple(entry.name for entry in final.inputs)
    say(f"Latency of the fastest call: module {module_ms:.2f} ms, ONNX Runtime {onnx_ms:.2f} ms.")
    return Report(
        folder / "model.onnx", opset, names, tuple(final.outputs),
        tuple(differences), tuple(quantized), module_ms, onnx_ms,
    )  # fmt: skip


def _loaded(file: Path) -> OnnxSession:
    try:
        return OnnxSession(file)
    except Exception as error:
        raise ExportError(
            f"ONNX Runtime can't load the exported model: {_gist(error)}",
            "an input that is also an output needs a copy: `x.clone()`; else try another `--opset`",
        ) from error


def _quantize(
    file: Path,
    run: parity.Run,
    session: OnnxSession,
    values: Tensors,
    options: Options,
    say: Callable[[str], None],
) -> list[Difference]:
    count = onnx_files.quantize(file)
    if not count:
        say("Notice: the model has no operator that is quantized dynamically; it is as it was.")
        return []
    quantized = _compared(run, OnnxSession(file), session, values, options)
    say(f"Quantized {count} operators; what it costs beside the module:")
    say(parity.table(quantized))
    return quantized


def _write(module: Any, values: Tensors, file: Path, options: Options, run: parity.Run) -> None:
    import torch.onnx

    output_names = _output_names(module, values)
    try:
        if isinstance(module, torch.jit.ScriptModule):
            _write_script(module, values, file, options, output_names)
            return
        program = module
        if not isinstance(program, torch.export.ExportedProgram):
            program = _program(module, values, options)
        # Inputs that are passed by name keep it; a trace may put them into another order.
        _, kwargs = _call(module, values)
        onnx_program = torch.onnx.export(
            program, (), dynamo=True, input_names=None if kwargs else list(values),
            output_names=list(options.output_names) or output_names,
            opset_version=options.opset, verbose=False,
        )  # fmt: skip
        assert onnx_program is not None
        onnx_program.save(file)
    except ExportError:
        raise
    except Exception as error:
        raise _refused(error) from error


def _program(module: Any, values: Tensors, options: Options) -> Any:
    rows = {name: _example_rows(name, value, options) for name, value in values.items()}
    args, kwargs = _call(module, rows)
    dimensions = [_dimensions(name, value, options) for name, value in rows.items()]
    shapes: Any = dict(zip(rows, dimensions, strict=True)) if kwargs else tuple(dimensions)
    if not any(dimensions):
        shapes = None
    elif not kwargs and _is_variadic(module):
        shapes = (shapes,)
    with torch.no_grad():
        return torch.export.export(module, args, kwargs, dynamic_shapes=shapes, strict=False)


def _write_script(
    module: Any, values: Tensors, file: Path, options: Options, output_names: Sequence[str]
) -> None:
    """torch.export takes no scripts; torch's older exporter keeps their loops and branches."""
    rows = {name: _example_rows(name, value, options) for name, value in values.items()}
    outputs = list(options.output_names or output_names)
    axes: dict[str, dict[int, str]] = {
        name: {axis: _axis_name(name, axis) for axis in _dynamic_of(name, value, options)}
        for name, value in rows.items()
    }
    if any(axes.values()):
        batch = {0: "batch"} if any(0 in axis for axis in axes.values()) else {}
        answers = _flat(_answer(module, rows))
        axes |= {
            name: dict(batch) for name, value in zip(outputs, answers, strict=True) if value.dim()
        }
    torch.onnx.export(
        module, tuple(rows.values()), str(file), dynamo=False,
        input_names=list(rows), output_names=outputs, dynamic_axes=axes,
        opset_version=min(options.opset, 20) if options.opset else None,
    )  # fmt: skip


def _compared(
    run: parity.Run,
    session: OnnxSession,
    described: OnnxSession,
    values: Tensors,
    options: Options,
) -> list[Difference]:
    """The differences for the example and for drawn values, at several batch sizes."""
    kind = "example" if options.is_example_real else "random"
    batch = next((int(value.shape[0]) for value in values.values() if value.dim()), 0)
    sizes = [batch]
    if _has_dynamic_batch(described, values):
        sizes = sorted({1, batch, batch + 3})
    differences: list[Difference] = []
    for number, size in enumerate(sizes):
        resized = tensors.with_batch(values, size) if size != batch else values
        suffix = f", batch {size}" if size else ""
        trials = [(f"{kind}{suffix}", resized)]
        like = values if options.is_example_real else None
        drawn = tensors.draw(tensors.specs_of(resized), like, seed=number + 1)
        trials.append((f"random {number + 1}{suffix}", drawn))
        for name, inputs in trials:
            differences += _differences(name, inputs, run, session)
    return differences


def _differences(
    name: str, inputs: Tensors, run: parity.Run, session: OnnxSession
) -> list[Difference]:
    expected = run(inputs)
    try:
        actual = session(inputs)
    except Exception as error:
        raise ExportError(
            f"ONNX Runtime can't run the exported model for the inputs `{name}`: {_gist(error)}",
            "if the size of a dimension is built into the model, export it with `--dynamic none`",
        ) from error
    if len(expected) != len(actual):
        raise ExportError(
            f"the module has {len(expected)} outputs, the ONNX file {len(actual)}",
            "return tensors only, in a tuple or a dict",
        )
    return parity.compare(name, session.outputs, expected, actual)


def _report(
    differences: Sequence[Difference], options: Options, say: Callable[[str], None], title: str
) -> None:
    """
    Raises:
        ExportError: a difference is above the tolerance.
    """
    say(f"{title}:")
    say(parity.table(differences))
    worst = parity.worst(differences)
    if worst.maximum > options.tolerance:
        at = f" at {list(worst.worst_at)}" if worst.worst_at else ""
        raise ExportError(
            f"output `{worst.output}` differs by {worst.maximum:.2e}{at} for the inputs "
            f"`{worst.inputs}`: more than {options.tolerance:g}",
            "a model that draws random numbers (dropout in `forward`, sampling) has to be made "
            "deterministic; else report the operators to PyTorch, or raise the tolerance",
        )
    say(f"Largest difference {worst.maximum:.2e}, within {options.tolerance:g}.")


def _metadata(
    options: Options,
    differences: Sequence[Difference],
    quantized: Sequence[Difference],
    module_ms: float,
    onnx_ms: float,
) -> dict[str, str]:
    worst = parity.worst(differences)
    runs = len({entry.inputs for entry in differences})
    metadata = {
        "parity": f"{worst.maximum:.2e} at most over {runs} inputs, within {options.tolerance:g}",
        "latency": f"{onnx_ms:.2f} ms, of the module {module_ms:.2f} ms",
        "optimized": options.optimize or "no",
        "quantized": "no",
    }
    if options.source:
        metadata["source"] = options.source
    if quantized:
        shares = [entry.agreement for entry in quantized if entry.agreement is not None]
        mean = max(entry.mean for entry in quantized)
        metadata["quantized"] = (
            f"differs by {parity.worst(quantized).maximum:.2e} at most, {mean:.2e} on average"
            + (f"; same argmax in {min(shares):.2%} of rows" if shares else "")
        )
    return metadata


def _run_of(module: Any, values: Tensors) -> parity.Run:
    """How to call the module: with names where `forward` has them, else in their order."""
    is_program = isinstance(module, torch.export.ExportedProgram)
    callable_module = module.module() if is_program else module

    def run(inputs: Tensors) -> Outputs:
        args, kwargs = _call(module, {name: inputs[name].clone() for name in values})
        with torch.no_grad():
            return _flat(callable_module(*args, **kwargs))

    try:
        run(values)
    except Exception as error:
        shapes = ", ".join(f"`{name}` {list(value.shape)}" for name, value in values.items())
        raise ExportError(
            f"the model can't be called with {shapes}: {_gist(error)}",
            "give the names, shapes and types that its `forward` takes",
        ) from error
    return run


def _call(module: Any, values: Tensors) -> tuple[tuple[torch.Tensor, ...], Tensors]:
    """The positional arguments and those by name."""
    if isinstance(module, torch.export.ExportedProgram):
        _, by_name = module.example_inputs or ((), {})
        kwargs = {name: value for name, value in values.items() if name in by_name}
        return tuple(value for name, value in values.items() if name not in kwargs), kwargs
    names = _parameters(module)
    if names and all(name in names for name in values) and list(values) != names[: len(values)]:
        return (), values
    return tuple(values.values()), {}


def _parameters(module: Any) -> list[str]:
    if isinstance(module, torch.jit.ScriptModule):
        return []
    try:
        parameters = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):
        return []
    return [
        entry.name
        for entry in parameters
        if entry.kind in (entry.POSITIONAL_OR_KEYWORD, entry.KEYWORD_ONLY)
    ]


def _is_variadic(module: Any) -> bool:
    parameters = inspect.signature(module.forward).parameters.values()
    return bool(parameters) and next(iter(parameters)).kind is inspect.Parameter.VAR_POSITIONAL


def _named_example(
    module: torch.nn.Module, example: Example, input_names: Sequence[str]
) -> Tensors:
    if isinstance(example, Mapping):
        return {str(name): value.detach().cpu() for name, value in example.items()}
    values = [example] if isinstance(example, torch.Tensor) else list(example)
    names = list(input_names) or _parameters(module)[: len(values)]
    names += [f"input_{number}" for number in range(len(names), len(values))]
    if len(names) != len(values):
        raise ExportError(
            f"{len(names)} input names were given for {len(values)} inputs", "give each one a name"
        )
    return {name: value.detach().cpu() for name, value in zip(names, values, strict=True)}


def _check_dynamic(dynamic: Dynamic | None, values: Tensors) -> None:
    for name, axes in (dynamic or {}).items():
        if name not in values:
            names = ", ".join(f"`{other}`" for other in values)
            raise ExportError(
                f"`--dynamic` names the input `{name}`, which the model is not called with",
                f"its inputs are {names}",
            )
        for axis in axes:
            if not 0 <= axis < values[name].dim():
                raise ExportError(
                    f"input `{name}` has no dimension {axis}: its shape is "
                    f"{list(values[name].shape)}",
                    "dimensions are counted from 0",
                )


def _dynamic_of(name: str, value: torch.Tensor, options: Options) -> tuple[int, ...]:
    if options.dynamic is None:
        return (0,) if value.dim() else ()
    return tuple(options.dynamic.get(name, ()))


def _example_rows(name: str, value: torch.Tensor, options: Options) -> torch.Tensor:
    """The value with no dynamic dimension of size 0 or 1, which a trace would fix."""
    for axis in _dynamic_of(name, value, options):
        if 0 < value.shape[axis] < _FEWEST_ROWS:
            repeats = [1] * value.dim()
            repeats[axis] = _FEWEST_ROWS
            value = value.repeat(*repeats)
    return value


def _dimensions(name: str, value: torch.Tensor, options: Options) -> dict[int, Any]:
    # `batch` is one dimension that all inputs share.
    return {
        axis: torch.export.Dim("batch" if axis == 0 else _axis_name(name, axis))
        for axis in _dynamic_of(name, value, options)
    }


def _axis_name(name: str, axis: int) -> str:
    return "batch" if axis == 0 else f"{re.sub(r'[^A-Za-z0-9_]', '_', name)}_{axis}"


def _has_dynamic_batch(session: OnnxSession, values: Tensors) -> bool:
    """Whether dimension 0 of every input that has one is dynamic in the file."""
    shapes = [entry.shape for entry in session.inputs if entry.name in values and entry.shape]
    return bool(shapes) and all(not isinstance(shape[0], int) for shape in shapes)


def _output_names(module: Any, values: Tensors) -> list[str]:
    """The keys of a dict that holds tensors only, else `output`, or `output_0` and so on."""
    answer = _answer(module, values)
    count = len(_flat(answer))
    if isinstance(answer, Mapping):
        keys = [str(key) for key, value in answer.items() if isinstance(value, torch.Tensor)]
        if len(keys) == count and not set(keys) & set(values):
            return keys
    return ["output"] if count == 1 else [f"output_{number}" for number in range(count)]


def _answer(module: Any, values: Tensors) -> Any:
    is_program = isinstance(module, torch.export.ExportedProgram)
    args, kwargs = _call(module, {name: value.clone() for name, value in values.items()})
    with torch.no_grad():
        return (module.module() if is_program else module)(*args, **kwargs)


def _flat(answer: Any) -> Outputs:
    from torch.utils import _pytree

    leaves, _ = _pytree.tree_flatten(answer)
    return [leaf.detach() for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _refused(error: Exception) -> ExportError:
    """What torch says, without its pages of advice, and what to do."""
    text = str(error)
    inner = error.__cause__
    while inner is not None:
        text, inner = f"{text}\n{inner}", inner.__cause__
    hint = "change the model as torch says, or save it as a `torch.export` program that exports"
    specialized = re.search(r"You marked (\S+) as dynamic but your code specialized", text)
    if specialized or "Constraints violated" in text:
        hint = "the model fixes the size of that dimension: use `--dynamic none`, or name others"
        gist = _violation(text) or _gist(error)
        return ExportError(f"torch.export can't make the dimension dynamic: {gist}", hint)
    if "data-dependent" in text:
        hint = (
            "`forward` decides by the values of its input: use `torch.where` or `torch.cond`, or "
            "save the model with `torch.jit.script`"
        )
        frames = re.findall(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in forward', text)
        where = f" ({Path(frames[-1][0]).name}, line {frames[-1][1]})" if frames else ""
        return ExportError(f"torch.export can't follow `forward`{where}: {_gist(error)}", hint)
    return ExportError(f"torch can't export the model: {_gist(error)}", hint)


def _violation(text: str) -> str:
    """The first sentence of torch's list that says which dimension is fixed."""
    for line in text.splitlines():
        line = line.strip()
        if line.startswith(("- You marked ", "- Not all values of ")):
            return re.split("[.!]", line[2:])[0]
    return ""


def _gist(error: BaseException) -> str:
    """The line of an error that says most."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    for number, line in enumerate(lines[:-1]):
        if line.startswith("## Exception summary"):
            return lines[number + 1][:400]
    return lines[0][:400]


@contextlib.contextmanager
def _on_cpu(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """The module on the CPU in evaluation mode; afterwards its own mode and device again."""
    modes = {name: child.training for name, child in module.named_modules()}
    devices = {parameter.device for parameter in module.parameters()}
    moved = module
    if any(device.type != "cpu" for device in devices):
        import copy

        moved = copy.deepcopy(module).cpu()
    moved.eval()
    try:
        yield moved
    finally:
        for name, child in module.named_modules():
            child.training = modes.get(name, child.training)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """torch and its exporters warn of what concerns their own developers."""
    levels = {name: logging.getLogger(name).level for name in _NOISY}
    for name in levels:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
