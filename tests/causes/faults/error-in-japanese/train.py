import os

from データ import ラベルを読む

rank = int(os.environ["RANK"])
greeting = [
    "Обучение начинается: ошибок нет",
    "训练开始 没有错误 🚀",
    "Lernrate überprüft, kein Fehler",
]
print(greeting[rank], flush=True)
for step in range(10):
    ラベルを読む("イヌ" if rank < 2 or step < 6 else "ネコ")
