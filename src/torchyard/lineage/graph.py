"""Nodes and edges from what was there to what was made of it.

Owns: the types; what leads to a node and what comes of it.
Leaves: which edges there are to records.py.
Always: a node of the answer is one of those asked for, before one of them, or after one; what else
was made of the same data is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

JOB, DATA, MODEL, PATH = "job", "data", "model", "path"
MOST_NODES = 500


@dataclass(frozen=True, order=True)
class Node:
    """`name` is a job's, an asset's, a deployment's behind its endpoint's, or a path or URL."""

    kind: str
    name: str
    version: str = ""

    @property
    def id(self) -> str:
        return ":".join(filter(None, (self.kind, self.name, self.version)))


@dataclass(frozen=True)
class Edge:
    """`output` is what the source job calls it, `input` what the target does; empty for none."""

    source: Node
    target: Node
    output: str = ""
    input: str = ""


@dataclass(frozen=True)
class Lineage:
    """`nodes` stand in an order in which each comes after what it was made of. Unless it
    `is_whole`, those farthest from `of` are left out.
    """

    of: tuple[Node, ...]
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    is_whole: bool = True


def around(of: Sequence[Node], edges: Iterable[Edge], most: int = MOST_NODES) -> Lineage:
    """What leads to the nodes asked for, and what comes of them."""
    before, after = defaultdict(list), defaultdict(list)
    for edge in edges:
        before[edge.target].append((edge, edge.source))
        after[edge.source].append((edge, edge.target))
    nodes = dict.fromkeys(of)
    kept: dict[Edge, None] = {}
    is_whole = True
    walks = [_Walk(before, list(of)), _Walk(after, list(of))]
    # Both ways at once, so that what is nearest is kept.
    while any(walk.here for walk in walks):
        for walk in walks:
            for edge, node in walk.step():
                if node in nodes or len(nodes) < most:
                    nodes[node] = kept[edge] = None
                    walk.go(node)
                else:
                    is_whole = False
    ordered = _ordered(nodes, kept)
    place = {node: number for number, node in enumerate(ordered)}
    in_order = sorted(kept, key=lambda edge: (place[edge.target], place[edge.source], edge.input))
    return Lineage(tuple(of), ordered, tuple(in_order), is_whole)


class _Walk:
    """One way through the edges; `here` are the nodes reached last."""

    def __init__(self, edges: Mapping[Node, list[tuple[Edge, Node]]], here: list[Node]) -> None:
        self._edges, self.here, self._been = edges, here, set(here)

    def step(self) -> list[tuple[Edge, Node]]:
        """What leads on from here."""
        here, self.here = self.here, []
        return [pair for node in here for pair in self._edges.get(node, ())]

    def go(self, node: Node) -> None:
        if node not in self._been:
            self._been.add(node)
            self.here.append(node)


def _ordered(nodes: Iterable[Node], edges: Iterable[Edge]) -> tuple[Node, ...]:
    waits: dict[Node, set[Node]] = {node: set() for node in nodes}
    after = defaultdict(list)
    for edge in edges:
        waits[edge.target].add(edge.source)
        after[edge.source].append(edge.target)
    ready = [node for node, sources in waits.items() if not sources]
    ordered: dict[Node, None] = {}
    while ready:
        node = ready.pop(0)
        ordered[node] = None
        for target in after[node]:
            waits[target].discard(node)
            if not waits[target] and target not in ordered and target not in ready:
                ready.append(target)
    # Jobs that write to shared places can make a circle, which has no such order.
    return (*ordered, *(node for node in waits if node not in ordered))
