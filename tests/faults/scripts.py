"""Scripts that fail, as users write them: none knows of torchyard.

Legend: `ring` is a stand-in for a process group: each rank holds a connection to rank 0, and a rank
that is gone breaks it for the others, as it does in gloo and NCCL.
"""

from __future__ import annotations

RING = """
import os, socket, time
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
PLACE = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
peers = []

def join():
    if RANK == 0:
        listener = socket.create_server(PLACE, backlog=64)
        while len(peers) < SIZE - 1:
            peers.append(listener.accept()[0])
        for peer in peers:
            peer.sendall(b"g")
        return
    while True:
        try:
            peers.append(socket.create_connection(PLACE))
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
    if not peers[0].recv(1):
        raise ConnectionResetError("Connection closed by peer")

def all_reduce():
    import select
    ready, _, _ = select.select(peers, [], [], 60)
    if not ready[0].recv(1):
        for peer in peers:
            peer.close()
        raise ConnectionResetError("Connection closed by peer [127.0.0.1]:6105")

def leave():
    for peer in peers:
        peer.close()
"""

FAIL = """
import sys
def step(batch):
    label = {0: 1}[0] + batch
    raise ValueError("bad label 7")
print("epoch 0")
step(3)
"""

SCRIPTS = {
    "ring": RING,
    "fail": FAIL,
    "only_rank": """
import os, sys, time
if os.environ["RANK"] == sys.argv[1]:
    raise ValueError("bad label 7")
time.sleep(60)
""",
    "peers": """
import os, sys, ring
ring.join()
if ring.RANK == int(sys.argv[1]):
    raise ValueError("bad label 7")
ring.all_reduce()
""",
    "leaves_first": """
import sys, time, ring
ring.join()
try:
    if ring.RANK == int(sys.argv[1]):
        raise ValueError("bad label 7")
    ring.all_reduce()
finally:
    ring.leave()
    if ring.RANK == int(sys.argv[1]):
        time.sleep(0.5)
""",
    "peer_signal": """
import os, sys, ring
ring.join()
if ring.RANK == int(sys.argv[1]):
    os.kill(os.getpid(), int(sys.argv[2]))
ring.all_reduce()
""",
    "peer_exit": """
import os, sys, ring
ring.join()
if ring.RANK == int(sys.argv[1]):
    os._exit(5)
ring.all_reduce()
""",
    "exits": "import sys\ndef main():\n    sys.exit(3)\nmain()\n",
    "exits_saying": "import sys\nsys.exit('no checkpoint in ./model')\n",
    "exits_after": """
import sys, traceback
def main():
    return 1 / 0
try:
    main()
except Exception:
    traceback.print_exc()
    sys.exit(4)
""",
    "exits_silently_after": """
import sys
try:
    open("/nowhere/train.csv")
except OSError:
    sys.exit(4)
""",
    "hard_exit": "import os\nprint('bye')\nos._exit(5)\n",
    "hard_exit_after": """
import os, sys, traceback
try:
    {}["lr"]
except KeyError:
    traceback.print_exc()
    sys.stderr.flush()
    os._exit(5)
""",
    "system_exit": "raise SystemExit(6)\n",
    "exit_builtin": "print('no data')\nexit(9)\n",
    "bytes_then_exit": """
import sys
sys.stdout.buffer.write(bytes(range(256)) * 20)
raise SystemExit(6)
""",
    "closed_stdout": """
import os, sys
sys.stdout = open(1, "w", closefd=False)
print("lost")
os.close(1)
raise SystemExit(6)
""",
    "closed_stdout_object": """
import sys
sys.stdout.close()
raise SystemExit(6)
""",
    "late_abort": """
import ctypes, os
libc = ctypes.CDLL(None)
libc.__cxa_atexit(ctypes.cast(libc.abort, ctypes.c_void_p), None, None)
with open("outputs/model.txt", "w") as file:
    file.write("trained")
""",
    "late_abort_after_failure": """
import ctypes, sys
libc = ctypes.CDLL(None)
libc.__cxa_atexit(ctypes.cast(libc.abort, ctypes.c_void_p), None, None)
raise ValueError("bad label 7")
""",
    "forks": """
import os, resource
if os.getuid() == 0:
    # The limit does not hold for root.
    os.setuid(65534)
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
while True:
    if os.fork() == 0:
        os._exit(0)
""",
    "segfault": """
import ctypes
def native_op():
    ctypes.string_at(0)
native_op()
""",
    "abort": "import os\ndef check():\n    os.abort()\ncheck()\n",
    "bus": """
import mmap, tempfile
file = tempfile.TemporaryFile()
file.write(b"x" * 8192); file.flush()
pages = mmap.mmap(file.fileno(), 8192)
file.truncate(0)
print(pages[5000])
""",
    "die": "import os, sys\nos.kill(os.getpid(), int(sys.argv[1]))\nimport time; time.sleep(30)\n",
    "memory": "rows = bytearray(1 << 46)\n",
    "recursion": "def f(n):\n    return f(n + 1)\nf(0)\n",
    "no_package": "from sklearn.svm import SVC\n",
    "no_package_nested": "import helpers_of_mine\n",
    "helpers_of_mine": "import cv2\n",
    "no_name": "from json import loadz\n",
    "syntax": "print('epoch'\nfor x in y:\n    pass\n",
    "indent": "def f():\nreturn 1\n",
    "needs_arguments": """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
parser.parse_args()
""",
    "no_data": "rows = open('/data/imagenet/train.csv').read()\n",
    "no_rights": "import subprocess\nsubprocess.run(['./data.txt'])\n",
    "disk_full": """
with open("/dev/full", "w") as file:
    file.write("weights" * 10000)
""",
    "port": """
import socket
one = socket.create_server(("127.0.0.1", 0))
two = socket.create_server(one.getsockname())
""",
    "asserts": "loss = float('nan')\nassert loss == loss, 'loss is NaN at step 12'\n",
    "files": """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
kept = [open("/dev/null") for _ in range(100)]
""",
    "thread": """
import sys, threading, time
def load():
    raise ValueError("bad shard 3")
loader = threading.Thread(target=load)
loader.start(); loader.join()
sys.exit(1)
""",
    "pool": """
import multiprocessing
def load(n):
    raise ValueError(f"bad shard {n}")
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(load, [3])
""",
    "child": """
import multiprocessing, sys
def load():
    raise ValueError("bad shard 3")
if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=load)
    child.start(); child.join()
    sys.exit(child.exitcode)
""",
    "subprocess_": """
import subprocess, sys
subprocess.run([sys.executable, "fail.py"], check=True)
""",
    "loader": '''
class ExceptionWrapper:
    def reraise(self):
        raise FileNotFoundError("""Caught FileNotFoundError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/env/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", line 349, in run
    data = fetcher.fetch(index)
  File "train.py", line 8, in __getitem__
    return open(f"/data/{index}.png")
FileNotFoundError: [Errno 2] No such file or directory: '/data/17.png'
""")
ExceptionWrapper().reraise()
''',
    "raises": """
import sys
class OutOfMemoryError(RuntimeError):
    pass
def forward():
    raise OutOfMemoryError(sys.argv[1])
forward()
""",
    "no_server": """
import urllib.request
urllib.request.urlopen("http://127.0.0.1:9/weights.bin")
""",
    "late": """
import ring, time
def load_data():
    time.sleep(120)
if ring.RANK == 3:
    load_data()
ring.join()
ring.all_reduce()
""",
    "hangs": """
import os, time
print("epoch 0")
def wait_for_batch():
    time.sleep(120)
wait_for_batch()
""",
    "sleeps": "import time\ntime.sleep(120)\n",
    "own_hook": """
import sys
sys.excepthook = lambda kind, value, trace: print("oh no")
raise ValueError("bad label 7")
""",
    "unicode": """
raise ValueError("bad path \\udcff \\u2713 " + "x" * 1000000)
""",
    "chain": """
def read():
    return {}["lr"]
try:
    read()
except KeyError:
    raise RuntimeError("config has no lr") from None
""",
    "group": """
def one():
    raise ValueError("bad label 7")
try:
    one()
except ValueError as error:
    raise ExceptionGroup("2 tasks failed", [error])
""",
    "noise": """
import os, sys, threading, time
def chatter():
    for n in range(2000):
        print("step", n, "x" * 40)
def fail():
    raise ValueError("bad label 7")
threading.Thread(target=chatter).start()
fail()
""",
    "kills_worker": """
import os, signal, time
if os.environ["RANK"] == "1":
    os.kill(os.getppid(), signal.SIGKILL)
time.sleep(60)
""",
    "first_of_two": """
import os, time
time.sleep(0.2 if os.environ["RANK"] == "2" else 0.9 if os.environ["RANK"] == "0" else 60)
raise ValueError(f"bad label of rank {os.environ['RANK']}")
""",
    "grandchild": """
import subprocess, sys
sys.exit(subprocess.run(["bash", "-c", "python segfault.py"]).returncode)
""",
    "attribute": "import types\nmodel = None\nmodel.forward(3)\n",
    "config": 'import json\njson.loads("{lr: 0.1}")\n',
    "task": """
import asyncio
async def load():
    raise ValueError("bad shard 3")
async def main():
    await asyncio.gather(load(), asyncio.sleep(30))
asyncio.run(main())
""",
    "broken_pool": """
import concurrent.futures, os
def load(n):
    os._exit(3)
if __name__ == "__main__":
    with concurrent.futures.ProcessPoolExecutor(1) as pool:
        print(pool.submit(load, 1).result())
""",
    "thread_pool": """
import concurrent.futures
def load(n):
    raise ValueError("bad shard 3")
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    print(pool.submit(load, 1).result())
""",
    "own_error": """
import subprocess, sys
child = subprocess.run([sys.executable, "-c", "import os; os._exit(3)"])
if child.returncode:
    raise RuntimeError(f"the tokenizer died with {child.returncode}")
""",
    "pickled": """
import pickle, tempfile
pickle.load(tempfile.TemporaryFile())
""",
    "variable": 'import os\nfolder = os.environ["DATA_DIR"]\n',
    "circular": "import circular_a\n",
    "circular_a": "from circular_b import B\nA = 1\n",
    "circular_b": "from circular_a import A\nB = 1\n",
    "busy": "while True:\n    pass\n",
    "own_faulthandler": """
import ctypes, faulthandler
faulthandler.enable()
def native_op():
    ctypes.string_at(0)
native_op()
""",
    "handles_term": """
import os, signal, sys, time
if os.environ["RANK"] == "1":
    time.sleep(0.3)
    raise ValueError("bad label 7")
def save(*_):
    print("saving"); sys.exit(3)
signal.signal(signal.SIGTERM, save)
time.sleep(60)
""",
    "logged": """
import logging
try:
    raise ValueError("bad label 7")
except ValueError as error:
    logging.exception("training failed")
    raise SystemExit(1) from error
""",
    "decode": "bytes([255]).decode()\n",
    "main_waits": """
import threading, time
def load():
    time.sleep(1)
threading.Thread(target=load).start()
raise ValueError("bad label 7")
""",
}
