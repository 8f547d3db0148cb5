with open("/dev/full", "w") as file:  # here
    file.write("weights" * 10000)  # here
