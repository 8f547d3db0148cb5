import sys

for number in range(int(sys.argv[1])):
    print(f"{number},{number * number},{number % 3}")
