import resource

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
shards = [open("/dev/null") for _ in range(100)]  # here
