"""Data assets of the workspace, over HTTP."""

from __future__ import annotations

from torchyard.client.assets import Assets


class Data(Assets):
    """Named, versioned files and folders that jobs take as inputs.

    Example::

        client.data.create({"name": "digits", "type": "uri_folder", "path": "./digits"})
        client.data.download("digits", "1", "copy")
    """

    kind = "data"
    noun = "data asset"
