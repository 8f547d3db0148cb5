import options

chosen = options.parse()
for step in range(chosen.steps):
    print(f"step {step} lr {min(1, (step + 1) / chosen.warmup_steps):.3f}", flush=True)
