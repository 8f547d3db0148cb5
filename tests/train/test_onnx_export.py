"""Exports of real modules with torch, onnx and ONNX Runtime."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torchyard.models import onnx_files  # noqa: E402
from torchyard.train import onnx  # noqa: E402
from torchyard.train.onnx import loading, parity, program, tensors  # noqa: E402
from torchyard.train.onnx.tensors import InputSpec  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(200),
    # torch and its exporters warn of their own future.
    pytest.mark.filterwarnings("ignore"),
]

SOURCE = """
import torch

class Net(torch.nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.inner = torch.nn.Linear(8, hidden)
        self.drop = torch.nn.Dropout(0.5)
        self.outer = torch.nn.Linear(hidden, 3)

    def forward(self, image, scale=None):
        logits = self.outer(self.drop(torch.relu(self.inner(image))))
        return {"logits": logits if scale is None else logits * scale}
"""


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module `net_of_tests.py:Net`, which can be pickled."""
    (tmp_path / "net_of_tests.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "net_of_tests", raising=False)
    import net_of_tests  # type: ignore[import-not-found]

    torch.manual_seed(0)
    return net_of_tests.Net()


def run_program(tmp_path: Path, model: Path, example: Path | None = None, **request: Any) -> int:
    file = tmp_path / "request.json"
    file.write_text(json.dumps(request))
    arguments = [str(file), str(model), str(tmp_path / "out")]
    return program.main([*arguments, str(example)] if example else arguments)


def test_an_exported_file_answers_as_the_module_at_every_batch_size(
    net: Any, tmp_path: Path
) -> None:
    lines: list[str] = []
    report = onnx.export(net, torch.randn(1, 8), tmp_path / "out", say=lines.append)
    assert net.training, "the module is left in its own mode"
    assert report.max_difference < 1e-5
    assert {entry.inputs for entry in report.differences} >= {
        "example, batch 1",
        "random 2, batch 4",
    }
    assert (report.inputs, report.outputs) == (("image",), ("logits",))
    session = parity.OnnxSession(report.file)
    images = torch.randn(7, 8)
    with torch.no_grad():
        expected = net.eval()(images)["logits"]
    torch.testing.assert_close(session({"image": images})[0], expected, atol=1e-5, rtol=1e-5)
    assert "MAX DIFFERENCE" in "\n".join(lines)
    described = onnx_files.read(report.file)
    assert [entry.shape for entry in described.inputs] == [("batch", 8)]
    assert [entry.shape for entry in described.outputs] == [("batch", 3)]
    assert described.opset == report.opset
    assert described.metadata["torchyard.parity"].endswith("within 0.001")
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["model.onnx"]


def test_inputs_by_name_keep_their_names_in_any_order(net: Any, tmp_path: Path) -> None:
    example = {"scale": torch.rand(2, 1), "image": torch.randn(2, 8)}
    report = onnx.export(net, example, tmp_path, say=lambda line: None)
    assert set(report.inputs) == {"image", "scale"}


def test_quantizing_prints_its_cost_and_optimizing_keeps_the_answers(
    net: Any, tmp_path: Path
) -> None:
    lines: list[str] = []
    report = onnx.export(
        net, torch.randn(4, 8), tmp_path, quantize=True, optimize="extended", say=lines.append
    )
    assert 0 < parity.worst(report.quantized).maximum < 0.2
    assert report.quantized[0].agreement is not None
    assert any(line.startswith("Quantized 2 operators") for line in lines)
    assert "on average" in onnx_files.read(report.file).metadata["torchyard.quantized"]


class Random(torch.nn.Module):  # type: ignore[misc,name-defined]
    def forward(self, x: Any) -> Any:
        return x + torch.rand(2, 8)


class Branches(torch.nn.Module):  # type: ignore[misc,name-defined]
    def forward(self, x: Any) -> Any:
        return x * 2 if x.sum() > 0 else x


class Fixed(torch.nn.Module):  # type: ignore[misc,name-defined]
    def forward(self, x: Any) -> Any:
        return x.reshape(2, 8) + 1


@pytest.mark.parametrize(
    ("module", "dynamic", "reason", "hint"),
    [
        (Random(), {}, "output `output` differs by .* for the inputs", "random"),
        (Branches(), None, "can't follow `forward` .*line", "torch.where"),
        (Fixed(), None, "can't make the dimension dynamic", "--dynamic none"),
        (Fixed(), {"y": (0,)}, "which the model is not called with", "`x`"),
        (Fixed(), {"x": (2,)}, "has no dimension 2", "from 0"),
        (torch.nn.Linear(4, 2), None, "can't be called with `input` \\[2, 8\\]", "shapes"),
    ],
)
def test_what_can_not_be_exported_says_why_and_leaves_no_file(
    module: Any, dynamic: Mapping[str, tuple[int, ...]] | None, reason: str, hint: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    with pytest.raises(onnx.ExportError, match=reason) as refused:
        onnx.export(module, torch.randn(2, 8), tmp_path, dynamic=dynamic, say=lambda line: None)
    assert hint in refused.value.hint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [{"optimize": "most"}, {"opset": 3}, {"tolerance": 0}])
def test_an_option_of_another_value_is_refused(tmp_path: Path, options: Any) -> None:
    with pytest.raises(onnx.ExportError):
        onnx.export(Fixed(), torch.randn(2, 8), tmp_path, **options)


def test_a_script_and_a_program_export_too(net: Any, tmp_path: Path) -> None:
    script = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(8, 3), torch.nn.ReLU()).eval())
    script.save(tmp_path / "script.pt")
    batch = torch.export.Dim("batch")
    exported = torch.export.export(net.eval(), (torch.randn(2, 8),), dynamic_shapes=({0: batch},))
    torch.export.save(exported, tmp_path / "net.pt2")
    for name, kind in (("script.pt", "script"), ("net.pt2", "program")):
        assert loading.kind_of(tmp_path / name) == kind
        inputs = [{"name": "features", "shape": [1, 8], "dtype": "float32"}]
        assert run_program(tmp_path, tmp_path / name, inputs=inputs, source=f"{kind}:1") == 0
        described = onnx_files.read(tmp_path / "out/model.onnx")
        assert [(entry.name, entry.shape) for entry in described.inputs] == [
            ("features", ("batch", 8))
        ]
        assert described.metadata["torchyard.source"] == f"{kind}:1"


def test_a_state_dict_needs_its_class_and_a_pickle_trust(
    net: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save(net.state_dict(), tmp_path / "state.pt")
    torch.save(net, tmp_path / "whole.pt")
    inputs = [{"name": "image", "shape": [2, 8], "dtype": "float32"}]
    assert run_program(tmp_path, tmp_path / "state.pt", inputs=inputs) == 2
    assert "is a state dict: 4 tensors" in capsys.readouterr().err
    module = f"{tmp_path}/net_of_tests.py:Net"
    wrong: dict[str, Any] = {"module": module, "module_args": {"hidden": 5}}
    assert run_program(tmp_path, tmp_path / "state.pt", inputs=inputs, **wrong) == 2
    assert "do not fit" in capsys.readouterr().err
    assert run_program(tmp_path, tmp_path / "state.pt", inputs=inputs, module=module) == 0
    assert run_program(tmp_path, tmp_path / "whole.pt", inputs=inputs) == 2
    assert "hint: if you trust it, add `--allow-pickle`" in capsys.readouterr().err
    assert run_program(tmp_path, tmp_path / "whole.pt", inputs=inputs, allow_pickle=True) == 0


def test_examples_of_every_form_are_read(tmp_path: Path) -> None:
    import numpy

    numpy.save(tmp_path / "x.npy", numpy.ones((2, 3), "float32"))
    numpy.savez(tmp_path / "x.npz", image=numpy.ones((2, 3)), ids=numpy.ones(4, "int64"))
    (tmp_path / "x.json").write_text('{"image": [[1.5, 2]], "ids": [3]}')
    (tmp_path / "x.csv").write_text("a,b\n1,2\n3,4\n")
    read = {
        name: {
            key: (tuple(value.shape), tensors.dtype_name(value.dtype))
            for key, value in tensors.read_example(tmp_path / name, []).items()
        }
        for name in ("x.npy", "x.npz", "x.json", "x.csv")
    }
    assert read == {
        "x.npy": {"input": ((2, 3), "float32")},
        "x.npz": {"image": ((2, 3), "float64"), "ids": ((4,), "int64")},
        "x.json": {"image": ((1, 2), "float32"), "ids": ((1,), "int64")},
        "x.csv": {"input": ((2, 2), "float32")},
    }
    with pytest.raises(onnx.ExportError, match="has shape \\[2, 3\\]"):
        tensors.read_example(tmp_path / "x.npy", [InputSpec("image", (1, 4))])
    with pytest.raises(onnx.ExportError, match="holds `image`, `ids`, `--input` names `x`"):
        tensors.read_example(tmp_path / "x.npz", [InputSpec("x", (1, 3))])
    for name, content in (("bad.npy", "no"), ("bad.json", '{"x": ["a"]}'), ("bad.csv", "1,b\n")):
        (tmp_path / name).write_text(content)
        with pytest.raises(onnx.ExportError, match=f"`{name}`"):
            tensors.read_example(tmp_path / name, [])


def test_differences_see_what_is_no_number_and_other_shapes() -> None:
    nan = float("nan")
    same = parity.compare("x", ["y"], [torch.tensor([nan, 1.0])], [torch.tensor([nan, 1.0])])
    assert same[0].maximum == 0
    off = parity.compare("x", ["y"], [torch.tensor([1.0, 1.0])], [torch.tensor([nan, 1.0])])
    assert (off[0].maximum, off[0].worst_at) == (float("inf"), (0,))
    shapes = parity.compare("x", ["y"], [torch.ones(2)], [torch.ones(3)])
    assert shapes[0].maximum == float("inf")
    relative = parity.compare("x", ["y"], [torch.tensor([1000.0])], [torch.tensor([1001.0])])
    assert relative[0].maximum == pytest.approx(1e-3)


def test_other_work_on_the_machine_is_no_latency() -> None:
    now_s, calls_s = 0.0, iter([9.0, 0.2, 0.002, 1.934, 0.2, 0.2])

    def run(_: tensors.Tensors) -> parity.Outputs:
        nonlocal now_s
        now_s += next(calls_s)
        return []

    assert parity.fastest_ms(run, {}, lambda: now_s) == pytest.approx(2.0)
