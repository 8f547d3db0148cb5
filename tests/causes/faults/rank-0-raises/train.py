import ring

ring.join()
if ring.RANK == 0:
    raise ValueError("bad label 7")  # here
ring.all_reduce()
