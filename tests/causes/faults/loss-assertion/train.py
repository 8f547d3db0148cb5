loss = 0.5
for step in range(100):
    loss = float("nan") if step == 12 else loss / 2
    assert loss == loss, f"loss is NaN at step {step}"  # here
