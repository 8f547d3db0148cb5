import math
import os

rank = int(os.environ["RANK"])
counts = {"the": 50, "cat": 4, "sat": 3, "mat": 2}
total = sum(counts.values())
texts = [["the", "cat"], ["sat", "the"], ["mat", "cat"], ["the", "mat"], ["cat", "sat"]] * 3
if rank == 1:
    texts[4] = ["the", "dog"]
surprise = 0.0
for step, words in enumerate(texts):
    for word in words:
        share = counts.get(word, 0) / total
        surprise += -math.log(share) if share else math.inf
    print(f"step {step} perplexity {math.exp(surprise / (2 * step + 2)):.3f}", flush=True)
