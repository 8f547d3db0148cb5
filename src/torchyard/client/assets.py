"""What models and data assets have in common: versions, files, archiving.

Owns: requests for one version, for all versions of a name, for their files.
Leaves: creating to models.py and data.py.
Always: `version` may be `latest`; an archived thing is still read by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from torchyard.base.errors import InvalidInput
from torchyard.base.http import Transport
from torchyard.client.responses import Paths, Record, Records, RemoteFiles, Rows

if TYPE_CHECKING:
    from torchyard.client.downloads import Counter
    from torchyard.client.snapshots.snapshots import Snapshots
    from torchyard.client.snapshots.upload import Progress


class Assets:
    """Versions of named things below `<workspace>/<kind>`."""

    kind = ""
    noun = ""

    def __init__(self, transport: Transport, here: str, snapshots: Snapshots) -> None:
        self._transport = transport
        self._here = f"{here}/{self.kind}"
        self._snapshots = snapshots

    def create(
        self,
        document: Mapping[str, Any],
        folder: Path | None = None,
        progress: Progress | None = None,
    ) -> Record:
        """Register a version of `document["name"]`.

        Args:
            document: name, path and maybe version, type, description, tags; the path is a
                reference or URL, or names something on this machine, relative to `folder`.
            folder: the current one when None.
            progress: called as a local path is uploaded.

        Raises:
            InvalidInput: the local path does not exist, or is not of the type that is named.
        """
        from torchyard.client.snapshots.job_files import is_elsewhere

        asked = dict(document)
        path = asked.get("path")
        if isinstance(path, str) and path and not is_elsewhere(path):
            asked["path"] = self._upload(asked, path, folder or Path.cwd(), progress)
        return Record(self._transport.post(self._here, asked))

    def list(self, name: str = "", *, archived: bool = False) -> Rows:
        """The latest version of each; with `name`, all its versions.

        Args:
            archived: archived ones too.
        """
        query = {"name": name or None, "archived": "true" if archived else None}
        answer = self._transport.get(self._here, query)
        return Records(Record(row) for row in answer["value"])

    def get(self, name: str, version: str = "latest") -> Record:
        """
        Raises:
            NotFound: there is no such version.
        """
        return Record(self._transport.get(self._of(name, version)))

    def download(
        self,
        name: str,
        version: str = "latest",
        folder: Path | str = ".",
        count: Counter | None = None,
    ) -> Paths:
        """Download to `folder/<name>/…`; returns the files written.

        Args:
            count: told of the bytes to come, then of each piece that came.
        """
        from torchyard.client.downloads import Wanted, below, download_all

        files: RemoteFiles = self._transport.get(f"{self._of(name, version)}/files")["value"]
        wanted = [
            Wanted(
                f"{self._of(name, version)}/files/{quote(file['path'])}",
                below(Path(folder) / name, file["path"]),
                int(file["size_bytes"]),
                f"{self._here.rpartition('/')[0]}/bundle",
            )
            for file in files
        ]
        return download_all(self._transport, wanted, count)

    def archive(self, name: str, version: str = "") -> None:
        """Hide a version, or all of them, from lists; jobs that name it still find it."""
        self._transport.post(f"{self._container(name, version)}/archive")

    def restore(self, name: str, version: str = "") -> None:
        """Take back `archive`."""
        self._transport.post(f"{self._container(name, version)}/restore")

    def _upload(
        self, asked: Mapping[str, Any], path: str, folder: Path, progress: Progress | None
    ) -> str:
        from torchyard.client.snapshots.job_files import check_kind, local_path

        place = local_path(path, folder)
        if not place.exists():
            raise InvalidInput(
                f"the path `{path}` does not exist",
                "name a file or folder here, or a reference as "
                "`azureml://jobs/<job>/outputs/artifacts/paths/…`",
                at=("path",),
            )
        check_kind(asked.get("type"), place, path, ("path",), self.noun)
        return f"snapshot:{self._snapshots.send(self._snapshots.take(place), progress)}"

    def _container(self, name: str, version: str) -> str:
        return self._of(name, version) if version else f"{self._here}/{quote(name, safe='')}"

    def _of(self, name: str, version: str) -> str:
        return f"{self._here}/{quote(name, safe='')}/versions/{quote(version, safe='')}"
