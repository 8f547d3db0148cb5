def load(shard):
    raise ValueError(f"bad shard {shard}")  # here


errors = []
for shard in (3, 5):
    try:
        load(shard)
    except ValueError as error:
        errors.append(error)
raise ExceptionGroup("some shards failed", errors)  # here
