import ctypes

LIBC = ctypes.CDLL(None)
LIBC.malloc.restype = ctypes.c_void_p
LIBC.free.argtypes = [ctypes.c_void_p]


class Buffer:
    def __init__(self, size):
        self.address = LIBC.malloc(ctypes.c_size_t(size))

    def release(self):
        LIBC.free(self.address)  # here
