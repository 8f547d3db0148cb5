# Run by train.py; later lines may use the earlier ones.
hidden = 256
layers = 4
heads = hidden // 64
lr = 3e-4
parameters = 12 * num_layers * hidden**2
warmup = 100
