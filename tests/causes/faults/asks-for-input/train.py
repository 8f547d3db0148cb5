from pathlib import Path

checkpoint = Path("last.ckpt")
for epoch in range(5):
    loss = 1 / (epoch + 1)
    print(f"epoch {epoch} loss {loss:.3f}", flush=True)
    if checkpoint.exists():
        answer = input(f"{checkpoint} exists. Overwrite it? [y/N] ")  # here
        if answer.lower() != "y":
            continue
    checkpoint.write_text(str(loss))
