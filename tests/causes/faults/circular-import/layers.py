from model import SIZE  # here

Layer = SIZE
