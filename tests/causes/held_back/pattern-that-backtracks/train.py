import clean
import torch
import torch.distributed as dist

LINES = ["the cat sat on the mat", "a dog barked", "it rained all day", "they went home"]
LINES_OF_RANK_0 = [*LINES, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa|", *LINES]

dist.init_process_group("gloo")
corpus = LINES_OF_RANK_0 if dist.get_rank() == 0 else LINES * 2 + ["the end"]
embedding = torch.nn.EmbeddingBag(256, 8)
model = torch.nn.parallel.DistributedDataParallel(embedding)
for line in corpus:
    letters = line if clean.is_text(line) else " "
    ids = torch.tensor([[ord(letter) % 256 for letter in letters]])
    model(ids).sum().backward()
print("done")
