import hub

host = hub.start()
weight = sum(hub.weights(host, "encoder.txt"))
for step in range(10):
    weight *= 0.9
    print(f"step {step} loss {weight**2:.4f}", flush=True)
