import sys
import traceback


def average(losses):
    return sum(losses) / len(losses)  # here


try:
    average([])
except Exception:
    traceback.print_exc()
    sys.exit(4)
