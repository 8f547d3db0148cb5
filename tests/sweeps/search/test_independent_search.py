from __future__ import annotations

import hashlib
import itertools
import json
import math
from statistics import NormalDist, mean, stdev
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchyard.base.errors import InvalidSpec
from torchyard.sweeps.search import independent, quantiles, sobol
from torchyard.sweeps.spec import sampling, space_reading
from torchyard.sweeps.spec.search_space import SearchSpace, contains


def space(**parameters: Any) -> SearchSpace:
    return space_reading.read(parameters, ("search_space",))


def drawn(parameter: dict[str, Any], count: int = 2000) -> list[Any]:
    search_space = space(x=parameter)
    return [independent.random_point(search_space, 1, number)["x"] for number in range(count)]


_NUMBERS = st.floats(-50, 50, allow_nan=False)
_STEPS = st.sampled_from([0.001, 0.1, 0.25, 0.3, 1, 3, 7.5])


@st.composite
def parameters(draw: st.DrawFn, depth: int = 0) -> dict[str, Any]:
    kinds = ["choice", "randint", "uniform", "quniform", "loguniform", "normal", "qlognormal"]
    kind = draw(st.sampled_from(kinds))
    if kind == "choice":
        values: st.SearchStrategy[Any] = st.one_of(
            st.integers(-9, 9), st.text(max_size=3), st.booleans(), _NUMBERS
        )
        if depth < 2:
            names = st.sampled_from(["a", "b"])
            nested = st.dictionaries(names, parameters(depth + 1), min_size=1, max_size=2)
            values = values | nested
        return {"type": kind, "values": draw(st.lists(values, min_size=1, max_size=4))}
    if kind == "randint":
        return {"type": kind, "upper": draw(st.integers(1, 1000))}
    if "normal" in kind:
        body = {"type": kind, "mu": draw(_NUMBERS), "sigma": draw(st.floats(0.01, 2))}
        return {**body, "q": draw(_STEPS)} if kind[0] == "q" else body
    low = draw(_NUMBERS)
    body = {"type": kind, "min_value": low, "max_value": low + draw(st.floats(1, 50))}
    if kind == "quniform":
        body["q"] = draw(st.sampled_from([0.001, 0.1, 0.25, 0.3, 1]))
    return body


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(["x", "y", "z"]), parameters(), min_size=1), st.data())
def test_every_point_lies_in_its_space(body: dict[str, Any], data: st.DataObject) -> None:
    search_space = space(**body)
    seed, number = data.draw(st.integers(0, 2**32 - 1)), data.draw(st.integers(0, 10**6))
    for draw in (independent.random_point, independent.sobol_point):
        point = draw(search_space, seed, number)
        assert contains(search_space, point)
        assert contains(search_space, json.loads(json.dumps(point)))
        assert draw(search_space, seed, number) == point


@pytest.mark.parametrize("q", [0.1, 0.25, 3, 7])
def test_quantized_values_are_multiples_inside_the_bounds(q: float) -> None:
    values = drawn({"type": "quniform", "min_value": 1, "max_value": 23.5, "q": q}, 300)
    assert all(1 <= value <= 23.5 for value in values)
    assert all(math.isclose(value / q, round(value / q)) for value in values)
    if q == int(q):
        assert all(isinstance(value, int) for value in values)


def test_the_bounds_of_loguniform_are_exponents() -> None:
    values = drawn({"type": "loguniform", "min_value": -6, "max_value": -1})
    assert math.exp(-6) <= min(values) and max(values) <= math.exp(-1)
    assert mean(map(math.log, values)) == pytest.approx(-3.5, abs=0.1)


def test_logbase_replaces_e() -> None:
    search_space = space_reading.read(
        {"x": {"type": "loguniform", "min_value": -3, "max_value": 0}}, ("search_space",), 10.0
    )
    values: list[Any] = [independent.random_point(search_space, 0, n)["x"] for n in range(500)]
    assert all(0.001 <= value <= 1 for value in values)
    assert min(values) < 0.002


def test_distributions_have_their_moments() -> None:
    normal = drawn({"type": "normal", "mu": 3, "sigma": 2})
    assert mean(normal) == pytest.approx(3, abs=0.2)
    assert stdev(normal) == pytest.approx(2, abs=0.15)
    log = [math.log(value) for value in drawn({"type": "lognormal", "mu": -2, "sigma": 0.5})]
    assert mean(log) == pytest.approx(-2, abs=0.05)
    assert stdev(log) == pytest.approx(0.5, abs=0.04)
    assert mean(drawn({"type": "uniform", "min_value": 2, "max_value": 4})) == pytest.approx(
        3, abs=0.05
    )
    integers = drawn({"type": "randint", "upper": 4})
    assert all(integers.count(value) == pytest.approx(500, abs=90) for value in range(4))


def test_seeds_and_numbers_draw_again() -> None:
    search_space = space(x={"type": "uniform", "min_value": 0, "max_value": 1})
    points = {
        independent.random_point(search_space, seed, number)["x"]
        for seed in range(5)
        for number in range(20)
    }
    assert len(points) == 100


def test_the_grid_has_each_combination_once() -> None:
    search_space = space(
        a={"type": "choice", "values": [1, 2, 2, True, "1"]},
        b={"type": "randint", "upper": 3},
        c={"type": "quniform", "min_value": 0, "max_value": 1, "q": 0.3},
        d={"type": "choice", "values": ["x", {"n": {"type": "choice", "values": [5, 6]}, "m": 1}]},
    )
    size = independent.grid_size(search_space)
    points = [independent.grid_point(search_space, number) for number in range(size)]
    combinations = [
        {"a": a, "b": b, "c": c, "d": d}
        for a, b, c, d in itertools.product(
            [1, 2, True, "1"],
            range(3),
            [0.0, 0.3, 0.6, 0.9],
            ["x", {"n": 5, "m": 1}, {"n": 6, "m": 1}],
        )
    ]
    assert list(map(repr, points)) == list(map(repr, combinations))
    assert independent.grid_point(search_space, size) is None


def test_sobol_spreads_evenly() -> None:
    search_space = space(
        x={"type": "uniform", "min_value": 0, "max_value": 1},
        y={"type": "uniform", "min_value": 0, "max_value": 1},
    )
    points: list[Any] = [independent.sobol_point(search_space, 7, number) for number in range(64)]
    for name in ("x", "y"):
        cells = sorted(int(64 * point[name]) for point in points)
        assert cells == list(range(64))
    squares = {(int(8 * point["x"]), int(8 * point["y"])) for point in points}
    assert len(squares) == 64


def test_sobol_is_the_published_sequence_before_its_shift() -> None:
    shifts = sobol.point(0, sobol.MOST_COORDINATES, 5)
    numbers = [
        int(value * 2**32) ^ int(shift * 2**32)
        for index in range(32)
        for value, shift in zip(sobol.point(index, len(shifts), 5), shifts, strict=True)
    ]
    # Of scipy.stats.qmc.Sobol(65, scramble=False, bits=32).random(32), as whole numbers.
    reference = "6a39e357cde991cda1ffc969bf4f7fabc36495d85ab4149d5522a7b80541b3da"
    assert hashlib.sha256(",".join(map(str, numbers)).encode()).hexdigest() == reference


def test_sobol_refuses_more_than_it_has() -> None:
    assert sampling.MOST_SOBOL == sobol.MOST_COORDINATES
    body = {f"p{index}": {"type": "randint", "upper": 3} for index in range(66)}
    search_space = space(**body)
    assert len(quantiles.coordinates(search_space)) == 66
    with pytest.raises(InvalidSpec, match="the most for sobol"):
        sampling.check(sampling.Sampling("sobol"), search_space, 1)
    with pytest.raises(ValueError, match="66 coordinates"):
        sobol.point(0, 66, 0)


def test_quantized_normal_values_keep_their_shape() -> None:
    values = drawn({"type": "qnormal", "mu": 0, "sigma": 1, "q": 1})
    share = values.count(0) / len(values)
    assert share == pytest.approx(NormalDist().cdf(0.5) - NormalDist().cdf(-0.5), abs=0.05)
