from skimage.transform import resize  # here

print(resize)
