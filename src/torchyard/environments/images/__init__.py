"""Images and Dockerfiles, and the engines that build them."""
