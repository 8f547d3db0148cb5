"""What ORTModule is asked for: DebugOptions, and the variables of the environment above them.

Owns: the choices, their defaults and their check.
Leaves: acting on them to the runners.
Always: a value that is none of the choices raises, and names the choices.
"""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass
from pathlib import Path

TRAINING = ("auto", "compile", "eager")
INFERENCE = ("auto", "onnxruntime", "eager")


class LogLevel(enum.IntEnum):
    """ONNX Runtime's."""

    VERBOSE = 0
    INFO = 1
    WARNING = 2
    ERROR = 3
    FATAL = 4


@dataclass
class DebugOptions:
    """`log_level` is ONNX Runtime's; `save_onnx` keeps what was exported for inference as
    `{onnx_prefix}_inference.onnx`, in the folder of ORTMODULE_SAVE_ONNX_PATH or the present one.

    `training` and `inference` are torchyard's: "auto" takes another way than the module itself when
    it was measured to be no slower; every other value takes that way without measuring.
    """

    log_level: LogLevel = LogLevel.WARNING
    save_onnx: bool = False
    onnx_prefix: str = ""
    training: str = "auto"
    inference: str = "auto"

    def __post_init__(self) -> None:
        if self.save_onnx and not self.onnx_prefix:
            raise ValueError("`onnx_prefix` must be set where `save_onnx` is")


@dataclass(frozen=True)
class Options:
    """What the runners read. `trial_after_s` is how long a module trains before torch.compile is
    tried; `saved` where the exported file goes.
    """

    training: str
    inference: str
    trial_after_s: float
    log_level: int
    saved: Path | None

    @classmethod
    def read(cls, debug: DebugOptions | None) -> Options:
        debug = debug or DebugOptions()
        saved = None
        if debug.save_onnx:
            folder = Path(os.environ.get("ORTMODULE_SAVE_ONNX_PATH", "."))
            saved = folder / f"{debug.onnx_prefix}_inference.onnx"
        return cls(
            _choice("TORCH_ORT_TRAINING", debug.training, TRAINING),
            _choice("TORCH_ORT_INFERENCE", debug.inference, INFERENCE),
            _seconds("TORCH_ORT_TRIAL_AFTER_S", 30.0),
            int(debug.log_level),
            saved,
        )


def _choice(variable: str, value: str, choices: tuple[str, ...]) -> str:
    value = os.environ.get(variable, value).lower()
    if value not in choices:
        raise ValueError(f"{variable} must be one of {', '.join(choices)}, not {value!r}")
    return value


def _seconds(variable: str, default: float) -> float:
    text = os.environ.get(variable, "")
    try:
        seconds = float(text) if text else default
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"{variable} must be a number of seconds, not {text!r}")
    return seconds
