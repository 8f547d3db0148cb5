import random


def random_crop(height, width, size, seed):
    """A square of `size` inside of the image."""
    generator = random.Random(seed)
    while True:  # here
        top = generator.randrange(height)  # here
        left = generator.randrange(width)  # here
        if top + size <= height and left + size <= width:  # here
            return top, left
