"""A process group in miniature: each rank holds a connection to rank 0."""

import os
import select
import socket
import time

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
# As with torch, a launcher's own store may use the port already.
IS_TAKEN = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
ADDRESS = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]) + IS_TAKEN)
peers = []


def join():
    if RANK == 0:
        listener = socket.create_server(ADDRESS, backlog=64)
        while len(peers) < SIZE - 1:
            peers.append(listener.accept()[0])
        for peer in peers:
            peer.sendall(b"g")
        return
    while True:
        try:
            peers.append(socket.create_connection(ADDRESS))
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
    if not peers[0].recv(1):
        raise ConnectionResetError("Connection closed by peer")


def all_reduce():
    ready, _, _ = select.select(peers, [], [], 60)
    if not ready[0].recv(1):
        leave()
        raise ConnectionResetError("Connection closed by peer [127.0.0.1]:6105")


def leave():
    for peer in peers:
        peer.close()
