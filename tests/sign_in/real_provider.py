"""npm's `oidc-provider`, run by Node; `make oidc-provider` installs it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

FOLDER = Path(__file__).parents[2] / ".oidc-provider"
CLIENT_ID, CLIENT_SECRET = "torchyard", "a secret: with / and % signs"


def new_key(kid: str) -> dict[str, Any]:
    """A private key as a JWK."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    document: dict[str, Any] = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key))
    return {**document, "kid": kid, "use": "sig", "alg": "RS256"}


class RealProvider:
    """
    Args:
        redirect_uri: the one that it sends browsers back to.
    """

    def __init__(self, folder: Path, redirect_uri: str, people: dict[str, Any]) -> None:
        if shutil.which("node") is None or not (FOLDER / "node_modules").is_dir():
            if os.environ.get("TORCHYARD_TEST_SERVICES") == "required":
                pytest.fail("there is no provider: `make oidc-provider`")
            pytest.skip("there is no provider: `make oidc-provider`")
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            self._port = int(free.getsockname()[1])
        self.issuer = f"http://127.0.0.1:{self._port}"
        self._world = folder / "world.json"
        self._log = folder / "provider.log"
        # Node finds packages beside the program.
        self._program = FOLDER / "provider.mjs"
        shutil.copy(Path(__file__).with_name("provider.mjs"), self._program)
        self._settings: dict[str, Any] = {
            "client_id": CLIENT_ID,
            "client_secret": CLIENT_SECRET,
            "redirect_uri": redirect_uri,
            "people": people,
        }
        self._process: subprocess.Popen[bytes] | None = None
        self.restart("first")

    def put(self, name: str, **claims: Any) -> None:
        """A person of the provider, new or changed."""
        people = self._settings["people"]
        people[name] = claims
        self._world.write_text(json.dumps(self._settings))

    def restart(self, kid: str) -> None:
        """With a new key, which alone it publishes from now on."""
        self.stop()
        self._settings["keys"] = [new_key(kid)]
        self._world.write_text(json.dumps(self._settings))
        with open(self._log, "ab") as log:
            command = ["node", str(self._program), str(self._port), str(self._world)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + 90
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=60).close()
                return
            except OSError:
                assert self._process.poll() is None, self._log.read_text()
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)
            self._process = None
