import ctypes


def native_op():
    ctypes.string_at(0)  # here


native_op()
