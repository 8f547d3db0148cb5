rows = bytearray(1 << 46)  # here
