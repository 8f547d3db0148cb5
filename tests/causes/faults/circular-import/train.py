import model

print(model.SIZE)
