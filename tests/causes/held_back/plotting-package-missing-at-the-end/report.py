def plot(losses, path):
    import seaborn  # here

    axes = seaborn.lineplot(x=range(len(losses)), y=losses)
    axes.figure.savefig(path)
