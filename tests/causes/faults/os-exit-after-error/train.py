import os
import sys
import traceback

config = {}
try:
    learning_rate = config["lr"]  # here
except KeyError:
    traceback.print_exc()
    sys.stderr.flush()
    os._exit(5)
