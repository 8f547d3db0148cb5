"""Charts with a logarithmic axis and moving averages."""

from __future__ import annotations

import math

import pytest

from torchyard.cli.terminal.plots import Line, Style, draw, smoothed


def line(*values: float) -> Line:
    return Line("loss", [(step, value, value) for step, value in enumerate(values)])


def labels(text: str) -> list[str]:
    return [row.split("┤")[0].strip() for row in text.splitlines() if "┤" in row]


def test_equal_factors_are_equal_distances_on_a_logarithmic_axis() -> None:
    text = draw([line(*(10.0**-step for step in range(7)))], Style(60, 14, log=True))
    assert labels(text) == ["1", "0.1", "0.01", "0.001", "0.0001", "1e-05", "1e-06"]
    rows = [row.index("┤") for row in text.splitlines() if "┤" in row]
    assert len(set(rows)) == 1
    # A straight line down: the dots of each row lie right of those above.
    firsts = [
        min(n for n, cell in enumerate(row[8:]) if cell > "⠀") for row in text.split("\n")[:12]
    ]
    assert firsts == sorted(firsts)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((2.0, 30.0), ["20", "10", "5", "2"]),
        ((0.26, 0.27), ["0.27", "0.26"]),
        ((1e-300, 1e300), ["1e+300", "1e+200", "1e+100", "1", "1e-100", "1e-200", "1e-300"]),
        ((5.0, 5.0), ["10", "5", "2"]),
    ],
)
def test_labels_of_a_logarithmic_axis_are_round(
    values: tuple[float, ...], expected: list[str]
) -> None:
    assert labels(draw([line(*values)], Style(60, 18, log=True))) == expected


def test_values_that_have_no_logarithm_are_left_out_and_told() -> None:
    text = draw([line(1.0, 0.0, -1.0, 10.0)], Style(60, 14, log=True))
    assert "some values are 0 or negative" in text and "NaN" not in text
    nothing = draw([line(0.0, -1.0)], Style(60, 14, log=True))
    assert "nothing to draw yet" in nothing and "some values are 0 or negative" in nothing
    both = draw([line(1.0, math.nan, 0.0)], Style(60, 14, log=True))
    assert "NaN or infinite" in both and "0 or negative" in both
    reduced = Line("loss", [(0, 0.0, 1.0), (1, 1.0, 100.0)])
    assert labels(draw([reduced], Style(60, 14, log=True)))[0] == "100"


def test_a_moving_average_starts_at_the_first_value_and_follows() -> None:
    average = [low for _, low, _ in smoothed(line(4.0, 0.0, 0.0, math.nan, 0.0), 0.5).columns]
    assert average[0] == 4.0 and average[1] == pytest.approx(4 / 3)
    assert average[2] == pytest.approx(4 / 7) and math.isnan(average[3])
    assert average[4] == pytest.approx(4 / 15)
    flat = smoothed(line(*[3.0] * 50), 0.99)
    assert all(low == high == pytest.approx(3.0) for _, low, high in flat.columns)
    huge = smoothed(line(1.7e308, 1.7e308), 0.9).columns
    assert huge[1][1] == pytest.approx(1.7e308)
    banded = smoothed(Line("loss", [(0, 1.0, 3.0)]), 0.9)
    assert banded.columns == [(0, 2.0, 2.0)]
