import torch.multiprocessing as mp

VOCABULARY = {word: number for number, word in enumerate("the a cat dog sat ran on off".split())}


def encode(sentences, queue):
    for sentence in sentences:
        queue.put([VOCABULARY[word] for word in sentence.split()])  # here
    queue.put(None)


def batches(sentences):
    context = mp.get_context("fork")
    queue = context.Queue(maxsize=4)
    process = context.Process(target=encode, args=(sentences, queue), daemon=True)
    process.start()
    while (batch := queue.get()) is not None:  # here
        yield batch
    process.join()
