"""A job in a notebook's cell, live: `from torchyard.notebook import RunDetails`.

Owns: following a job for as long as it runs, its view in JupyterLab, Notebook 7 and VS Code, and
the HTML that a saved notebook keeps of it.
Leaves: requests to the SDK, drawing to the module that is built of ui/src/widget.
Always: the kernel alone talks to the server, so no token is in the notebook or in the browser;
nothing is printed into the notebook.
"""

from __future__ import annotations

__all__ = ["RunDetails"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from torchyard.notebook.run_details import RunDetails
else:

    def __getattr__(name):
        if name != "RunDetails":
            raise AttributeError(f"module 'torchyard.notebook' has no attribute {name!r}")
        try:
            import anywidget  # noqa: F401
        except ImportError as error:
            raise ImportError(
                "`torchyard.notebook` needs anywidget, which is not installed in this Python\n"
                "hint: `pip install 'torchyard[notebook]'`, then restart the kernel"
            ) from error
        from torchyard.notebook.run_details import RunDetails

        return RunDetails
