"""Environments that jobs of the workspace may name, over HTTP."""

from __future__ import annotations

from torchyard.answers import Record, Records, Rows
from torchyard.base.errors import NotFound, nearest
from torchyard.base.http import Transport


class Environments:
    """Environments that jobs of the workspace may name."""

    def __init__(self, transport: Transport, here: str) -> None:
        self._transport = transport
        self._here = f"{here}/environments"

    def list(self, name: str = "", *, archived: bool = False) -> Rows:
        """All of them; with `name`, its versions."""
        query = {"archived": "true" if archived else None}
        found = Records(Record(row) for row in self._transport.get(self._here, query)["value"])
        return Records(row for row in found if not name or row.get("name") == name)

    def get(self, name: str, version: str = "latest") -> Record:
        """
        Raises:
            NotFound: there is no such environment, or not in this version.
        """
        everything = self.list()
        found = [row for row in everything if row.get("name") == name]
        if not found:
            like = nearest(name, [str(row.get("name")) for row in everything])
            raise NotFound(
                f"environment `{name}` does not exist",
                (f"did you mean `{like}`? " if like else "")
                + "see what there is with `yard environment list`",
            )
        if version == "latest":
            return found[-1]
        for row in found:
            if str(row.get("version")) == version:
                return row
        known = ", ".join(str(row.get("version")) for row in found)
        raise NotFound(f"environment `{name}` has no version `{version}`", f"it has: {known}")
