import socket
import threading


class Receiver:
    """Takes the figures of the data workers by a socket in the run's folder."""

    def __init__(self, folder):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(folder / "telemetry.sock"))  # here
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self):
        while True:
            print("worker:", self.socket.recv(1000).decode(), flush=True)
