def learning_rate(config):
    return config["lr"]


try:
    learning_rate({})
except KeyError:
    raise RuntimeError("config has no lr") from None  # here
