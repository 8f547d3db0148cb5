"""Training of the classifier; run it by `python -m trainer.main`."""
