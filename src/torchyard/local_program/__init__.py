"""The program that runs SDK v1's target `local` on a user's own machine; standard library only."""
