import json

with open("config.json") as file:
    config = json.load(file)  # here
print(config["lr"])
