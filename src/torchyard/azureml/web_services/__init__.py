"""SDK v1's web services: each is an online endpoint with one deployment of the same name."""
