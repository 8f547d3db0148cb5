IGNORED = -100


def batches(rank, count=40):
    """Stands for an export whose later part has not been annotated yet."""
    for number in range(count):
        labels = [(number + position + rank) % 3 for position in range(8)]
        yield number, labels if number < 12 else [IGNORED] * len(labels)
