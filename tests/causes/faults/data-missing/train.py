with open("/data/imagenet/train.csv") as file:  # here
    rows = file.readlines()
