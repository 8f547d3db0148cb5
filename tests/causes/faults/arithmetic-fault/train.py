import signal


def native_op():
    signal.raise_signal(signal.SIGFPE)  # here


native_op()
