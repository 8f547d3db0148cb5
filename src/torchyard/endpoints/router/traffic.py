"""Which deployment gets the next request.

Owns: the split by weights, and whose turn it is to be mirrored.
Leaves: the weights to the table.
Always: any run of requests as long as the sum of the weights holds each deployment exactly as often
as its weight says; with weights of 100 in all, so does any 1,000 requests.

Source: the smooth weighted round robin of nginx,
https://github.com/nginx/nginx/commit/52327e0627f49dbda1e8db695e63a4b0af4448b1
"""

from __future__ import annotations

from collections.abc import Mapping


class Split:
    """Deployments in turn, by their weights."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        self.weights = dict(weights)
        self._credits = {name: 0 for name, weight in weights.items() if weight}
        self._total = sum(weights.values())

    def next(self) -> str:
        """The deployment for one more request; empty when no weight is positive."""
        credits = self._credits
        if len(credits) <= 1:
            return next(iter(credits), "")
        chosen, highest = "", -1 << 62
        for name in credits:
            credits[name] += self.weights[name]
            if credits[name] > highest:
                chosen, highest = name, credits[name]
        credits[chosen] -= self._total
        return chosen


class Shares:
    """Of each hundred requests, as many as the percentage of each deployment."""

    def __init__(self, percents: Mapping[str, int]) -> None:
        self.percents = dict(percents)
        self._credits = dict.fromkeys(percents, 0)

    def next(self) -> list[str]:
        """The deployments that get a copy of one more request."""
        chosen = []
        for name, percent in self.percents.items():
            credit = self._credits[name] + percent
            if credit >= 100:
                credit -= 100
                chosen.append(name)
            self._credits[name] = credit
        return chosen
