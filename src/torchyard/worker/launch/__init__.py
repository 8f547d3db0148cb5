"""Start the ranks: variables, processes, images, MPI."""
