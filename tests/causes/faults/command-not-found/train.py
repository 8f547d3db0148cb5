print("epoch 0")
