"""What saving and loading checkpoints can raise.

Owns: `CheckpointError` and its kinds.
Leaves: failures that a later try may mend to the writer, which tries again and logs them.
Always: the message names the checkpoint, key, file or rank; the hint gives the next step.
"""

from __future__ import annotations

from collections.abc import Sequence


class CheckpointError(RuntimeError):
    """A checkpoint can't be saved or loaded."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message}\nhint: {hint}" if hint else message)
        self.message = message
        self.hint = hint


class CheckpointMismatch(CheckpointError):
    """Keys of the state are not in the checkpoint, or of another shape; `problems` names each."""

    def __init__(self, step: int, problems: Sequence[str]) -> None:
        listed = "".join(f"\n  {problem}" for problem in problems)
        super().__init__(
            f"the checkpoint of step {step} does not fit this state:{listed}",
            "load it into a model and optimizer of the same structure, or pass `strict=False` to "
            "leave these keys as they are",
        )
        self.problems = tuple(problems)


class NonFiniteState(CheckpointError):
    """The state holds NaN or infinity, and `refuse_nan` was set; `keys` names each tensor."""

    def __init__(self, step: int, keys: Sequence[str]) -> None:
        super().__init__(
            f"the state of step {step} has NaN or infinite values: {', '.join(keys)}",
            "load an earlier checkpoint; without `refuse_nan` such states are saved",
        )
        self.keys = tuple(keys)
