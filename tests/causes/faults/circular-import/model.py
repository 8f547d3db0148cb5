from layers import Layer

SIZE = 1
print(Layer)
