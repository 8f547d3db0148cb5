print("epoch 0"  # here
for step in range(3):
    print(step)
