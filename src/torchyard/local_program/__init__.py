"""The program that runs SDK v1's target `local` in a user's own Python; standard library only."""
