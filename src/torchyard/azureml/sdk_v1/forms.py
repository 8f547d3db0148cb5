"""Forms with files, as SDK v1 sends them.

Owns: finding a JSON file in a form.
Leaves: what it means to the routes.
Always: any other body is refused as invalid input.
"""

from __future__ import annotations

import email
import email.policy
import json
from collections.abc import Mapping
from typing import Any

from torchyard.base.errors import InvalidInput


def json_file(name: str, content_type: str, body: bytes) -> Mapping[str, Any]:
    """The JSON object in the form's file of that name.

    Raises:
        InvalidInput: the form lacks that file, or it holds something else.
    """
    head = f"Content-Type: {content_type}\r\n\r\n".encode()
    form = email.message_from_bytes(head + body, policy=email.policy.HTTP)
    for part in form.iter_parts() if form.is_multipart() else ():
        if part.get_filename() == name:
            try:
                document = json.loads(part.get_content())
            except (ValueError, RecursionError) as error:
                raise InvalidInput(f"`{name}` is not JSON") from error
            if isinstance(document, dict):
                return document
    raise InvalidInput(f"the request contains no `{name}`", "send it as a form with files")
