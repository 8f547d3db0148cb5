"""Keep the serving processes of an instance running.

Owns: finding the socket that it was handed, the variables that Azure sets, starting the server and
starting it again, the instance's error.
Leaves: the server itself to serving.py, probes and replacing an instance to endpoints/running/.
Always: it listens at the socket that it inherited and at no port, so that nobody calls it but who
made the socket; that stays open while the server is replaced, so that no connection is refused
meanwhile; a script that never began to serve is never tried again; a server
waits in line, with all but the script imported. Runs on Python 3.6 and later with the standard
library alone.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

# How often a server that served before may end soon after its start, one after the other.
MOST_SOON = 6
SOON_S = 10.0
LONGEST_DELAY_S = 5.0
GRACE_S = 30.0
COLLECT = "TORCHYARD_COLLECT"
# Where Azure's own server listens; here nothing does.
PORT = "5001"
# Python before 3.8 has no name for it. Source: asm-generic/socket.h.
SO_DOMAIN = 39
# After the first answers, which it would slow down.
SUCCESSOR_AFTER_S = 0.5
HERE = os.path.dirname(os.path.abspath(__file__))


class ScoringFailed(Exception):
    """The scoring script can't serve; the text says why, and where in it."""


def main() -> None:
    options = read_options()
    listener = inherited()
    folder = tempfile.mkdtemp(prefix="torchyard-serving-")
    try:
        os.environ.update(variables(options, folder))
        if os.environ.get(COLLECT):
            import data_sidecar

            os.environ.update(data_sidecar.start(json.loads(os.environ[COLLECT]), folder))
        supervise(listener, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_options() -> "argparse.Namespace":
    parser = argparse.ArgumentParser()
    parser.add_argument("--entry", required=True, help="the scoring script, below --root")
    parser.add_argument("--root", default=".", help="the folder of its code")
    parser.add_argument("--model", default="", help="where the model's files are")
    parser.add_argument("--model-as", default="", help="NAME/VERSION below the models' folder")
    parser.add_argument("--leaf", default="", help="what the model's folder is called")
    parser.add_argument("--service", default="")
    parser.add_argument("--prefix", default="")
    return parser.parse_args()


def inherited() -> socket.socket:
    """The Unix socket that whoever started this instance made, and listens at already."""
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        try:
            if number > 2 and os.get_inheritable(number) and is_listener(number):
                os.set_inheritable(number, False)
                return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=number)
        except OSError:
            pass  # the listing's own, or no socket
    raise ScoringFailed("the instance was handed no socket to serve at")


def is_listener(number: int) -> bool:
    """
    Raises:
        OSError: it is no socket.
    """
    copy = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=os.dup(number))
    try:
        domain = copy.getsockopt(socket.SOL_SOCKET, SO_DOMAIN)
        listens = copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        return domain == socket.AF_UNIX and bool(listens)
    finally:
        copy.close()


def variables(options: "argparse.Namespace", folder: str) -> "dict[str, str]":
    """Those that scoring scripts read, as Azure's images set them."""
    root = os.path.abspath(options.root)
    made = {
        "AML_APP_ROOT": root,
        "AZUREML_ENTRY_SCRIPT": options.entry,
        "SERVICE_NAME": options.service or "service",
        "SERVICE_PATH_PREFIX": options.prefix,
        "SERVER_PORT": PORT,
        "TORCHYARD_SERVING_STATE": folder,
        "TORCHYARD_SERVING_LAST": os.path.join(folder, "error.json"),
    }
    if options.model:
        made["AZUREML_MODEL_DIR"] = model_folder(options, folder)
    for name, value in (("WORKER_COUNT", "1"), ("AML_APP_INSIGHTS_ENABLED", "false")):
        made[name] = os.environ.get(name) or value
    return made


def model_folder(options: "argparse.Namespace", folder: str) -> str:
    """AZUREML_MODEL_DIR: a folder that holds the model under its own name."""
    model = str(os.path.abspath(options.model))
    if not os.path.exists(model):
        raise ScoringFailed(f"the model is not at {model}")
    top = os.path.join(linkable(model, folder), "azureml-models")
    parent = os.path.join(top, *(options.model_as or "model/1").split("/"))
    if os.path.isfile(model):
        parent_of_file = os.path.join(parent, options.leaf)
        os.makedirs(parent_of_file)
        link(model, os.path.join(parent_of_file, os.path.basename(model)))
    elif options.leaf:
        mirror(model, os.path.join(parent, options.leaf))
    else:
        return model
    return parent


def linkable(model: str, folder: str) -> str:
    """`folder`, or one on the model's own file system, where its files can have other names."""
    device = os.stat(model).st_dev
    if os.stat(folder).st_dev == device or os.stat(HERE).st_dev != device:
        return folder
    return os.path.join(HERE, os.path.basename(folder)) if os.access(HERE, os.W_OK) else folder


def mirror(folder: str, target: str) -> None:
    """Folders of its own with the files in them: os.walk does not enter a link to a folder."""
    for path, _, names in os.walk(folder):
        there = os.path.normpath(os.path.join(target, os.path.relpath(path, folder)))
        os.makedirs(there)
        for name in names:
            link(os.path.join(path, name), os.path.join(there, name))


def link(file: str, name: str) -> None:
    """Another name of the file; a symbolic link where it can't have one.

    MLflow and ONNX Runtime refuse files of a model that are links to another folder.
    """
    file = os.path.realpath(file)
    try:
        os.link(file, name)
    except OSError:
        os.symlink(file, name)


def supervise(listener: socket.socket, folder: str) -> None:
    """Run the server until this process is asked to end."""
    servers = Servers(listener, folder)
    signal.signal(signal.SIGTERM, servers.end)
    soon = 0
    has_served = False
    while not servers.is_ending:
        started_at = time.time()
        ready_before = size_of(os.path.join(folder, "ready"))
        servers.start()
        code = servers.wait()
        if servers.is_ending:
            break
        error = last_error(folder)
        is_ready = size_of(os.path.join(folder, "ready")) > ready_before
        has_served = has_served or is_ready
        if not has_served:
            servers.end_successor()
            raise ScoringFailed(error or f"the inference server ended with code {code}")
        # One that could serve was ended from outside: the next one can, too.
        soon = soon + 1 if not is_ready and time.time() - started_at < SOON_S else 0
        if soon >= MOST_SOON:
            servers.end_successor()
            raise ScoringFailed(error or f"the inference server ended {soon} times")
        print(f"torchyard: the inference server ended ({code}); it is started again", flush=True)
        # At once the first time.
        delay_s = 0 if soon < 2 else min(LONGEST_DELAY_S, 0.5 * 2 ** (soon - 2))
        deadline = time.time() + delay_s
        while not servers.is_ending and time.time() < deadline:
            time.sleep(0.05)
    servers.end_successor()


class Servers:
    """The server that answers, and its successor: a process that has imported the server already
    and waits to follow it, so that connections wait for the script alone.
    """

    def __init__(self, listener: socket.socket, folder: str) -> None:
        self.is_ending = False
        self.listener = listener
        self.folder = folder
        self.server: Any = None
        self.successor: Any = None
        self.next_at = 0.0

    def end(self, number: int, frame: "Any") -> None:
        self.is_ending = True
        if self.server is not None:
            self.server.send_signal(signal.SIGTERM)

    def start(self) -> None:
        successor, self.successor = self.successor, None
        if successor is None or not say_go(successor):
            successor = self.launch()
            say_go(successor)
        self.server = successor
        if self.is_ending:  # it was asked to before this server was there
            successor.send_signal(signal.SIGTERM)

    def launch(self) -> "Any":
        number = self.listener.fileno()
        words = [sys.executable, os.path.join(HERE, "serving.py"), str(number)]
        # A group of its own: what is left of a server that was killed is ended with it.
        return subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            bufsize=0,
            pass_fds=[number],
            preexec_fn=os.setpgrp,
        )

    def wait(self) -> int:
        """Until the server has ended, with all that it started."""
        server = self.server
        deadline = None
        while True:
            try:
                code = int(server.wait(timeout=0.5 if deadline is None else 0.1))
                break
            except subprocess.TimeoutExpired:
                if self.is_ending and deadline is None:
                    deadline = time.time() + GRACE_S
                    server.send_signal(signal.SIGTERM)
                if deadline is not None and time.time() > deadline:
                    server.kill()
                if not self.is_ending:
                    self.keep_successor()
        try:
            os.killpg(server.pid, signal.SIGKILL)
        except OSError:
            pass
        return code

    def keep_successor(self) -> None:
        """Have one once the server answers; one that ends by itself is not tried again soon."""
        try:
            ready_at = os.stat(os.path.join(self.folder, "ready")).st_mtime
        except OSError:
            return
        now = time.time()
        if self.successor is not None and self.successor.poll() is not None:
            self.end_successor()
            self.next_at = now + LONGEST_DELAY_S
        if self.successor is None and now >= max(ready_at + SUCCESSOR_AFTER_S, self.next_at):
            self.successor = self.launch()

    def end_successor(self) -> None:
        successor, self.successor = self.successor, None
        if successor is not None:
            successor.kill()
            successor.wait()
            successor.stdin.close()


def say_go(server: "Any") -> bool:
    """Whether it lived to hear it."""
    try:
        server.stdin.write(b"\n")
    except OSError:
        return False
    finally:
        server.stdin.close()
    return server.poll() is None


def size_of(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def last_error(folder: str) -> str:
    """What a serving process wrote before it gave up; empty for one that was killed."""
    try:
        with open(os.path.join(folder, "error.json"), encoding="utf-8") as file:
            return str(json.load(file)["message"])
    except (OSError, ValueError, KeyError):
        return ""


MYPY = False
if MYPY:
    from typing import Any

if __name__ == "__main__":
    main()
