def problems(config):
    if config["optimizer"] not in ("sgd", "adamw"):
        yield f"optimizer: {config['optimizer']!r} is neither sgd nor adamw"
    if config["warmup_steps"] >= config["steps"]:
        yield f"warmup_steps: {config['warmup_steps']} of {config['steps']} steps"
    if config["hidden"] % config["heads"]:
        yield f"heads: {config['hidden']} is no multiple of {config['heads']}"
