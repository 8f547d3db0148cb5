import sys

shard, vocabulary = int(sys.argv[1]), {"the": 0, "cat": 1}
words = ["the cat", "the dog"][shard].split()
print([vocabulary[word] for word in words])
