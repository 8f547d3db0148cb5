import augment

print(augment.flip)
