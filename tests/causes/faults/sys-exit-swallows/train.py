import sys

try:
    rows = open("/nowhere/train.csv")  # here
except OSError:
    sys.exit(4)  # here
