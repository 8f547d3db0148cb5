SPEAKERS = {f"s{number}": number for number in range(16)}


def speaker(name):
    if name not in SPEAKERS:
        raise LookupError(f"no speaker {name!r} in the table")  # here
    return SPEAKERS[name]
