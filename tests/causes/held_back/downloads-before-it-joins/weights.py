import shutil
import socket
import time

PORT_OF_MIRROR = 9  # "discard": nothing listens there


def fetch(path, is_cached):
    if is_cached:
        shutil.copy(__file__, path)
        return
    for attempt in range(1, 1000):
        try:
            socket.create_connection(("127.0.0.1", PORT_OF_MIRROR), timeout=5).close()
        except OSError as error:
            print(f"attempt {attempt}: {error}; trying again", flush=True)
            time.sleep(min(300, 4**attempt))  # here
