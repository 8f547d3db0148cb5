"""What a package registers with the server and with the command line.

Owns: the form of it, and loading what a name stands for.
Leaves: what there is to the module `feature` of each package, which ones there are to features.py.
Always: all is named by texts and loaded when it is first used; nothing is imported here, so that
`yard --help` costs no more than Python itself.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


class Feature:
    """
    Attributes:
        nouns: of the command line, each with its module, whose `group` it is, and its line of help.
        routes: modules with a `router`, by the paths that their routes are below: from `/` on, or
            within a workspace.
        is_described: whether OpenAPI describes these routes.
        job_types: beside `command`, each with the name of a `JobType`.
        job_pages: of the same types, the function of what `yard job show` shows below a job's page.
        azure_jobs: the same types in Azure's words, each the name of a `JobKind`.
        keepers: names of what runs beside requests: `keeping(services, state)` is an asynchronous
            context manager, `state` that of the application.
        tables: modules of tables, which a new database gets, and in which `yard gc` looks for files
            to keep.
    """

    def __init__(
        self,
        *,
        nouns: Mapping[str, tuple[str, str]] | None = None,
        routes: Mapping[Sequence[str], Sequence[str]] | None = None,
        is_described: bool = True,
        job_types: Mapping[str, str] | None = None,
        job_pages: Mapping[str, str] | None = None,
        azure_jobs: Mapping[str, str] | None = None,
        keepers: Sequence[str] = (),
        tables: Sequence[str] = (),
    ) -> None:
        self.nouns = nouns or {}
        self.routes = routes or {}
        self.is_described = is_described
        self.job_types = job_types or {}
        self.job_pages = job_pages or {}
        self.azure_jobs = azure_jobs or {}
        self.keepers = keepers
        self.tables = tables


def load(name: str) -> Any:
    """What `package.module:attribute` stands for, below `torchyard`."""
    from importlib import import_module

    module, _, attribute = name.partition(":")
    return getattr(import_module(f"torchyard.{module}"), attribute)
