BUILDERS = {}


class ConfigError(Exception):
    pass


def register(name):
    def add(builder):
        BUILDERS[name] = builder
        return builder

    return add


def build(options):
    options = dict(options)
    name = options.pop("name")
    try:
        return BUILDERS[name](**options)  # here
    except TypeError as error:
        raise ConfigError(f"can't build the dataset {name!r}") from error  # here
