"""The program that scores the files of a job; it is copied into the code of the job."""
