"""`RunDetails`: a job in a cell, with the interface of azureml.widgets' class of that name.

Owns: which job is meant, what a cell holds: the saved page, and over it the widget.
Leaves: following to follower.py.
Always: the saved page is renewed when the status changes, and every ten seconds when others do.
"""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

from IPython import get_ipython
from IPython.display import display, update_display

from torchyard.base.errors import InvalidInput
from torchyard.client.client import Client
from torchyard.client.job import JobSummary
from torchyard.client.job_reader import JobReader
from torchyard.notebook.follower import follow
from torchyard.notebook.saved_page import saved_page
from torchyard.notebook.view import View, ViewReader
from torchyard.notebook.widget import JobWidget

_SAVE_EVERY_S = 10.0
_WIDGET = "application/vnd.jupyter.widget-view+json"


class RunDetails:
    """Status, stages, charts and the end of the log of a job, refreshed until the job has ended.

    At the end of a cell it shows itself, as `show()` does.

    Args:
        job: a job of the SDK, its name, or a run or a job of Azure ML's clients.
        client: where a name is looked up; `Client()` when left out.

    Raises:
        NotFound: no job has this name.
        InvalidInput: this is not a job.

    Example::

        from torchyard.notebook import RunDetails

        RunDetails(job)
    """

    def __init__(self, job: Any, *, client: Client | None = None) -> None:
        self.name, reader = _resolve(job, client)
        # The client may be used by a cell while this is refreshed.
        views = ViewReader(reader.twin(), self.name)
        self._ident = uuid4().hex
        self._outputs: list[str] = []
        self._saved: tuple[str, float] = ("", 0.0)
        view = views.read()
        self.widget = JobWidget(saved=self._ident)
        self.widget.update(view)
        self._view = view
        self._follower = follow(reader.page(self.name), views.read, view, time.sleep)
        self._follower.listen(self._update)

    def show(self, render_lib: object = None, widget_settings: object = None) -> None:
        """Show the job in this cell.

        Args:
            render_lib, widget_settings: accepted for azureml.widgets; ignored.
        """
        if get_ipython() is None:
            print(self)
            return
        output = uuid4().hex
        display(self._page(), raw=True, display_id=output)
        self._outputs.append(output)
        display({_WIDGET: self._widget_reference()}, raw=True)

    def get_widget_data(self, widget_settings: object = None) -> dict[str, Any]:
        """What is shown, as JSON, with `run_id` and `status`.

        Args:
            widget_settings: accepted for azureml.widgets; ignored.
        """
        view = self._follower.view
        return {
            "run_id": self.name,
            "status": view.job["status"],
            "job": view.job,
            "metrics": view.metrics,
            "log": view.log,
        }

    def __repr__(self) -> str:
        return f"RunDetails({self.name!r}, {self._view.job['status']})"

    def _ipython_display_(self) -> None:
        self.show()

    def _widget_reference(self) -> dict[str, Any]:
        return {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id}

    def _page(self) -> dict[str, str]:
        return {"text/html": saved_page(self._view, self._ident), "text/plain": repr(self)}

    def _update(self, view: View) -> None:
        self._view = view
        self.widget.update(view)
        status, saved_at = self._saved
        now = time.monotonic()
        is_due = view.has_ended or view.job["status"] != status or now - saved_at > _SAVE_EVERY_S
        if not is_due:
            return
        self._saved = (view.job["status"], now)
        page = self._page()
        for output in self._outputs:
            update_display(page, raw=True, display_id=output)


def _resolve(job: Any, client: Client | None) -> tuple[str, JobReader]:
    if isinstance(job, JobSummary):
        return job.name, job._reader
    name = _name_of(job)
    if not name:
        raise InvalidInput(
            f"`RunDetails` shows a job, not {type(job).__name__}",
            "give a job as `client.jobs.get(name)` returns it, or its name",
        )
    return name, (client or Client()).jobs


def _name_of(job: Any) -> str:
    """The name of a job; a run of azureml-core has it as `id`, a job of azure-ai-ml as `name`."""
    if isinstance(job, str):
        return job
    ident, name = getattr(job, "id", None), getattr(job, "name", None)
    if isinstance(ident, str) and ident and "/" not in ident:
        return ident
    return name if isinstance(name, str) else ""
