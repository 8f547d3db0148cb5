import sys

for line in range(int(sys.argv[1])):
    print(" ".join(str(line * number % 997) for number in range(40)))
