import sys

sys.stdout.buffer.write(bytes(range(256)) * 20)
raise SystemExit(6)  # here
