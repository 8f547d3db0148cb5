import ctypes

# Stands for a library whose destructor aborts.
libc = ctypes.CDLL(None)
libc.__cxa_atexit(ctypes.cast(libc.abort, ctypes.c_void_p), None, None)
with open("model.txt", "w") as file:
    file.write("trained")
