import socket
import subprocess
import sys
import time


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def start():
    port = free_port()
    subprocess.Popen([sys.executable, "scorer.py", str(port)])
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))  # here
        except ConnectionRefusedError:
            time.sleep(0.5)  # The model takes minutes to load.  # here
