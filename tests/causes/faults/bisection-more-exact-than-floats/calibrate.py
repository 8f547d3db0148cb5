def temperature(error, low=0.5, high=50.0, tolerance=1e-17):
    while high - low > tolerance:  # here
        middle = (low + high) / 2  # here
        if error(middle) > 0:  # here
            low = middle  # here
        else:  # here
            high = middle  # here
    return (low + high) / 2
