"""Names for jobs that come without one.

Owns: the adjective, the noun and the ten characters behind them, as Azure ML makes them.
Leaves: uniqueness to the database's key.
Always: a name that `spec.NAME` accepts.
"""

from __future__ import annotations

import secrets

_ADJECTIVES = (
    "amber ashy bold brave bright brisk calm clever cool crisp dapper eager early fair fine frank "
    "fresh gentle glad good grand green happy hardy honest jolly keen kind large light lively "
    "lucky mellow merry mild modest neat nimble noble plain proud quick quiet rapid ready red "
    "sharp silent silver sincere sleek smart smooth snowy solid steady stoic strong sunny sweet "
    "swift tender tidy tough upbeat vast vivid warm wide wise witty young zen"
).split()
_NOUNS = (
    "acorn anchor apple arrow badger bamboo beach beacon bean bear berry bird boat bridge brook "
    "button cable candle carrot cedar chair cherry clock cloud clover comet coral crane cricket "
    "curtain door dragon drum engine fern field fig flower forest fox garden glove grape gull "
    "hamster heron hill honey island jacket kettle kite ladder lake lamp leaf lemon lime lion "
    "lobster locket maple market meadow moon mountain needle nest oak ocean onion orchid owl "
    "panda parrot peach pear pepper plum pocket pond prune pump quilt rabbit rain river rocket "
    "root sail seal shirt snail soup spade spoon squash star stone street sugar sun table tiger "
    "tomato tree tulip turnip valley vase wheel whistle wolf yak yard zebra"
).split()
_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_TAIL_LENGTH = 10
_COMBINATIONS = len(_ADJECTIVES) * len(_NOUNS) * len(_CHARACTERS) ** _TAIL_LENGTH


def generate() -> str:
    """`calm_river_0k3xq8c2vd`, for example."""
    # One number for all choices: the system is asked for randomness once.
    number, adjective = divmod(secrets.randbelow(_COMBINATIONS), len(_ADJECTIVES))
    number, noun = divmod(number, len(_NOUNS))
    tail = []
    for _ in range(_TAIL_LENGTH):
        number, character = divmod(number, len(_CHARACTERS))
        tail.append(_CHARACTERS[character])
    return f"{_ADJECTIVES[adjective]}_{_NOUNS[noun]}_{''.join(tail)}"
