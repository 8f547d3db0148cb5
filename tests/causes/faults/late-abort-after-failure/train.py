import ctypes

# Stands for a library whose destructor aborts.
libc = ctypes.CDLL(None)
libc.__cxa_atexit(ctypes.cast(libc.abort, ctypes.c_void_p), None, None)
raise ValueError("bad label 7")  # here
