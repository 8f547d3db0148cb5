"""The widget: what the browser draws, kept the same in the kernel and in the browser.

Owns: the names of what is sent, the module that is sent with it.
Leaves: what is in it to view.py.
Always: a part is sent only when it has changed.
"""

from __future__ import annotations

from pathlib import Path

import anywidget
import traitlets

from torchyard.notebook.view import View

SCRIPT = Path(__file__).with_name("assets") / "widget.js"


class JobWidget(anywidget.AnyWidget):
    """One job; cells that show the same widget are redrawn together."""

    _esm = SCRIPT.read_text()
    job = traitlets.Dict().tag(sync=True)
    charts = traitlets.Dict().tag(sync=True)
    log = traitlets.Dict().tag(sync=True)
    note = traitlets.Unicode().tag(sync=True)
    saved = traitlets.Unicode().tag(sync=True)

    def update(self, view: View) -> None:
        self.job, self.charts, self.log, self.note = view.job, view.charts, view.log, view.note
