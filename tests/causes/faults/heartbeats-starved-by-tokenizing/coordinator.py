import os
import socket
import threading

ADDRESS = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))


def _serve(listener, limit_s):
    while True:
        connection, _ = listener.accept()
        connection.settimeout(limit_s)
        try:
            while beat := connection.recv(100):
                connection.sendall(beat)
        except TimeoutError:
            print(f"coordinator: no heartbeat for {limit_s} s, dropping a member", flush=True)
        connection.close()


def start(limit_s=1.0):
    listener = socket.create_server(ADDRESS)
    threading.Thread(target=_serve, args=(listener, limit_s), daemon=True).start()
