"""What leads to a node, and what comes of it."""

from __future__ import annotations

from torchyard.lineage.graph import Edge, Node, around


def edges(text: str) -> list[Edge]:
    """`a>b b>c` as edges between jobs."""
    pairs = (pair.split(">") for pair in text.split())
    return [Edge(Node("job", source), Node("job", target)) for source, target in pairs]


def names(text: str, of: str, most: int = 100) -> str:
    return " ".join(node.name for node in around([Node("job", of)], edges(text), most).nodes)


def test_what_else_was_made_of_the_same_is_left_out() -> None:
    assert names("raw>a raw>b a>c b>d c>m", "c") == "raw a c m"


def test_each_node_comes_after_what_it_was_made_of() -> None:
    found = around([Node("job", "d")], edges("c>d b>c a>c a>d b>d"))
    assert [node.name for node in found.nodes] in (list("abcd"), list("bacd"))
    places = {node: number for number, node in enumerate(found.nodes)}
    assert all(places[edge.source] < places[edge.target] for edge in found.edges)
    assert len(found.edges) == 5


def test_a_circle_ends() -> None:
    assert sorted(names("a>b b>c c>a", "b").split()) == list("abc")


def test_the_farthest_are_left_out() -> None:
    chain = " ".join(f"n{number}>n{number + 1}" for number in range(20))
    found = around([Node("job", "n10")], edges(chain), most=5)
    assert [node.name for node in found.nodes] == ["n8", "n9", "n10", "n11", "n12"]
    assert not found.is_whole
    assert around([Node("job", "n10")], edges(chain), most=21).is_whole


def test_what_nothing_is_known_of_is_alone() -> None:
    found = around([Node("data", "digits", "1")], [])
    assert [node.id for node in found.nodes] == ["data:digits:1"]
    assert (found.edges, found.is_whole) == ((), True)
