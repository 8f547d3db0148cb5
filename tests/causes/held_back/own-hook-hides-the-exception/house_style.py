import os
import sys


def install():
    """No stack traces in the logs of customers."""

    def hook(kind, value, trace):
        print("Run aborted. See https://wiki.example/runs for help.", file=sys.stderr, flush=True)
        os._exit(70)

    sys.excepthook = hook
