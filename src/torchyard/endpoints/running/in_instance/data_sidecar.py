"""Receive what a scoring script collects with Azure's `azureml.ai.monitoring`.

Owns: the address that its Collector posts to, the variables and the file that tell it so, the line
of each post.
Leaves: the files and their limits to endpoints/router/collected_files.py, which lies beside it in
an instance.
Always: listens on loopback alone; a post that is answered with 200 is in its file.

Source: azureml-ai-monitoring 1.0: azureml/ai/monitoring/config/config.py,
azureml/ai/monitoring/worker/sender.py.
"""

import base64
import errno
import json
import os
import sys
import threading
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MOST_BYTES = 1 << 20
PATH = "/modeldata/log"
TYPE = "azureml.inference."
REFUSED = "torchyard: collected data is dropped: {}"


def start(settings: "dict[str, Any]", state: str) -> "dict[str, str]":
    """Listen in a thread; returns the variables for the scoring script.

    Args:
        settings: folder, source, rolling, max_bytes and collections, the rates by name.
        state: a folder for the file that the package reads.
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(Sink(settings)))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config = os.path.join(state, "data-collector.json")
    rates = {
        name: {"enabled": True, "sampleRatePercentage": rate * 100}
        for name, rate in settings["collections"].items()
    }
    with open(config, "w", encoding="utf-8") as file:
        json.dump({"collections": rates}, file)
    return {
        "AZUREML_MDC_CONFIG_PATH": config,
        "AZUREML_MDC_HOST": "127.0.0.1",
        "AZUREML_MDC_PORT": str(server.server_address[1]),
    }


class Sink:
    """Writes events, one at a time."""

    def __init__(self, settings: "dict[str, Any]") -> None:
        from collected_files import CollectedFiles

        self._settings = settings
        # The package writes the names of collections in small letters.
        self._names = {name.lower(): name for name in settings["collections"]}
        self._lock = threading.Lock()
        self._has_failed = False
        self._files = CollectedFiles(Path(settings["folder"]))

    def write(self, headers: "Any", content: "bytes | None") -> int:
        """The status of the answer.

        Args:
            content: None for one that is too long.
        """
        kind = headers.get("ce-type", "")
        name = self._names.get(kind[len(TYPE) :].lower()) if kind.startswith(TYPE) else None
        if name is None:
            return 404
        now = datetime.now(timezone.utc)
        line = json.dumps(self._event(name, now, headers, content)).encode() + b"\n"
        settings = self._settings
        with self._lock:
            try:
                if not os.access(settings["folder"], os.W_OK):
                    raise OSError(errno.EACCES, "its folder can't be written from here")
                self._files.append(name, now, line, settings["rolling"], settings["max_bytes"])
                self._has_failed = False
            except OSError as error:
                if not self._has_failed:
                    self._has_failed = True
                    print(REFUSED.format(error.strerror), file=sys.stderr, flush=True)
                return 507
        return 200

    def _event(
        self, name: str, now: datetime, headers: "Any", content: "bytes | None"
    ) -> "dict[str, Any]":
        request_id = headers.get("ce-x-request-id", "")
        event = {
            "specversion": "1.0",
            "id": headers.get("trace-id", ""),
            "source": self._settings["source"],
            "type": TYPE + name,
            "time": now.isoformat(),
            "correlationid": request_id,
            "xrequestid": request_id,
            "datacontenttype": headers.get("Content-Type", "application/json"),
            "collectdatatype": headers.get("ce-collect-data-type", ""),
            "agent": headers.get("ce-agent", ""),
        }
        if content is None:
            event["truncated"] = True
            return event
        try:
            event["data"] = json.loads(content.decode())
        except (ValueError, RecursionError):
            event["data_base64"] = base64.b64encode(content).decode()
        return event


def _handler(sink: Sink) -> "type[BaseHTTPRequestHandler]":
    class Handler(BaseHTTPRequestHandler):
        timeout = 30

        def do_POST(self) -> None:
            try:
                length = int(self.headers.get("Content-Length", ""))
            except ValueError:
                length = -1
            if self.path != PATH or length < 0:
                self.send_error(404 if length >= 0 else 411)
                return
            content = self.rfile.read(min(length, MOST_BYTES))
            left = length - len(content)
            while left > 0:
                dropped = len(self.rfile.read(min(left, 1 << 16)))
                if not dropped:
                    return
                left -= dropped
            status = sink.write(self.headers, None if length > MOST_BYTES else content)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *arguments: "Any") -> None:
            pass

    return Handler


MYPY = False
if MYPY:
    from typing import Any
