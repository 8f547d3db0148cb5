def flatten(tree):
    return flatten([tree])  # here


flatten([])
