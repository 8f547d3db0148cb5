raise ValueError("bad path \udcff \u2713 " + "x" * 1_000_000)  # here
