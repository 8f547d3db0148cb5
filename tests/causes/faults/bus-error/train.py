import mmap
import tempfile

file = tempfile.TemporaryFile()
file.write(b"x" * 8192)
file.flush()
pages = mmap.mmap(file.fileno(), 8192)
file.truncate(0)
print(pages[5000])  # here
