import sys

for line in sys.stdin:
    print(len(line.split()), flush=True)
