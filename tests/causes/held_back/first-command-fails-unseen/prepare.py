import argparse
import csv
import io
import json

parser = argparse.ArgumentParser()
parser.add_argument("--rows", type=int, default=100)
options = parser.parse_args()

EXPORT = "price,area\n" + "".join(f"{n * 10},{n}\n" for n in range(options.rows)) + "1.200,00,77\n"
rows = []
for row in csv.reader(io.StringIO(EXPORT.replace("1.200,00", '"1.200,00"'))):
    if row[0] != "price":
        rows.append([float(cell) for cell in row])  # here
with open("rows.json", "w") as file:
    json.dump(rows, file)
print(len(rows), "rows")
