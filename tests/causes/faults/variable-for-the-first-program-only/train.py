import os


class Settings:
    def __init__(self, environment):
        self.corpus = environment["CORPUS_NAME"]  # here
        self.epochs = int(environment.get("EPOCHS", "3"))


def main():
    settings = Settings(os.environ)
    for epoch in range(settings.epochs):
        print(f"{settings.corpus}: epoch {epoch}", flush=True)


if __name__ == "__main__":
    main()
