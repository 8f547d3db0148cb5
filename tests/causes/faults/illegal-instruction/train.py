import signal


def native_op():
    signal.raise_signal(signal.SIGILL)  # here


native_op()
