def build(classes):
    return [0.0] * classes
