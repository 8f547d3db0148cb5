番号 = {"イヌ": 0, "トリ": 1}


def ラベルを読む(名前):
    if 名前 not in 番号:
        raise ValueError(f"ラベルが不正です: {名前}")  # here
    return 番号[名前]
