from json import loadz  # here

print(loadz)
