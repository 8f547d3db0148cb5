"""What a data scientist's job tries, to become the server or somebody else; one line each.

It is the code of a job: standard library only. SITE names what it knows of the machine, which is
more than a job would: every path and process number that it attacks.
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable

SITE = json.loads(os.environ["SITE"])


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(64)


def write(path: str) -> None:
    with open(path, "ab") as file:
        file.write(b"changed")


def kill(pid: int) -> str:
    os.kill(pid, signal.SIGKILL)
    return "killed"


def trace(pid: int) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(16, pid, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "attached"


def link(path: str) -> bytes:
    os.link(path, "stolen")
    return read("stolen")


def connect(path: str) -> str:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
    return "connected"


def become_owner(url: str) -> str:
    body = json.dumps({"role": "owner"}).encode()
    token = os.environ["AZUREML_RUN_TOKEN"]
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/users/anna/role", body, headers, method="PUT")
    try:
        urllib.request.urlopen(request)
    except urllib.error.HTTPError as error:
        raise OSError(f"HTTP {error.code}") from error
    return "is an owner"


def setuid(program: str) -> str:
    done = subprocess.run([program, "-u"], capture_output=True, text=True)
    if done.stdout.strip() != "0":
        raise OSError(f"it runs as {done.stdout.strip() or done.stderr.strip()}")
    return "root"


def as_root(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError((done.stderr.strip() or "refused").splitlines()[-1])
    return done.stdout


HOME, NODE, OTHER = SITE["home"], SITE["node_folder"], SITE["other"]
TAKEOVERS: dict[str, Callable[[], object]] = {
    "read the owner's token": lambda: read(f"{HOME}/token"),
    "read the signing key": lambda: read(f"{HOME}/signing.key"),
    "read the database": lambda: read(f"{HOME}/torchyard.db"),
    "write into the database": lambda: write(f"{HOME}/torchyard.db"),
    "list the server's home": lambda: os.listdir(HOME),
    "read the TLS key": lambda: read(SITE["tls_key"]),
    "read the server's environment": lambda: read(f"/proc/{SITE['server']}/environ"),
    "read the server's memory": lambda: read(f"/proc/{SITE['server']}/mem"),
    "list the server's open files": lambda: os.listdir(f"/proc/{SITE['server']}/fd"),
    "enter the server's folder by /proc": lambda: os.listdir(f"/proc/{SITE['server']}/cwd"),
    "attach to the server as a debugger": lambda: trace(SITE["server"]),
    "kill the server": lambda: kill(SITE["server"]),
    "become an owner by the API": lambda: become_owner(SITE["url"]),
    "read another person's API key in /proc": lambda: read(f"/proc/{SITE['rank']}/environ"),
    "attach to another person's rank": lambda: trace(SITE["rank"]),
    "read another person's plan": lambda: read(f"{OTHER}/plan.json"),
    "list another person's scratch": lambda: os.listdir(f"{OTHER}/node-0/work"),
    "link another person's plan": lambda: link(f"{OTHER}/plan.json"),
    "change another job's output": lambda: write(f"{OTHER}/node-0/work/outputs/model.txt"),
    "rename another job's folder": lambda: os.rename(OTHER, f"{OTHER}-gone"),
    "list everybody's scratch": lambda: os.listdir(f"{NODE}/scratch"),
    "make a folder among the scratch folders": lambda: os.mkdir(f"{NODE}/scratch/mine"),
    "read another person's home": lambda: os.listdir(SITE["other_home"]),
    "kill another person's rank": lambda: kill(SITE["rank"]),
    "kill another person's worker": lambda: kill(SITE["worker"]),
    "change the worker's program": lambda: write(SITE["worker_program"]),
    "replace what names the server": lambda: write(f"{NODE}/server/server.json"),
    "kill the runner": lambda: kill(SITE["runner"]),
    "talk to the runner": lambda: connect(SITE["socket"]),
    "remove the runner's socket": lambda: os.unlink(SITE["socket"]),
    "change the runner's configuration": lambda: write(SITE["config"]),
    "read who has which account": lambda: read(f"{SITE['state']}/accounts.json"),
    "change torchyard's own code": lambda: write(SITE["code"]),
    "gain root's rights by a setuid program": lambda: setuid(SITE["setuid"]),
    "become root by su": lambda: as_root("su", "-c", "id", "root"),
    "take root's number": lambda: os.setuid(0),
}

for name, takeover in TAKEOVERS.items():
    try:
        answer = f"SUCCEEDED: {takeover()!r:.80}"
    except OSError as error:
        answer = f"refused: {error.strerror or error}"
    print(f"{name}: {answer}", flush=True)
