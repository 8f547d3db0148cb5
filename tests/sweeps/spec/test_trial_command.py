from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchyard.base.errors import InvalidSpec
from torchyard.shared import brackets
from torchyard.sweeps.spec import space_reading, trial_command
from torchyard.sweeps.spec.search_space import SearchSpace

HOSTILE = [
    "it's",
    'say "hi"',
    "$(touch x) `id` $HOME",
    "a b\tc\nd",
    "\\",
    "\\'\"$",
    "${{inputs.data}}",
    "]] $[[--x]]",
    "]",
    "{{",
    "$",
    "",
    "# no comment",
    "~ * ? [a-z] !!",
    "{1..3}",
]
# Each prints the value alone, whatever it holds.
PLACES = [
    "printf %s ${{search_space.x}}",
    'printf %s "${{search_space.x}}"',
    "printf %s '${{search_space.x}}'",
    "printf %s $'${{search_space.x}}'",
    'printf %s "$(printf %s ${{search_space.x}})"',
    'printf %s "$(printf %s "${{search_space.x}}")"',
    "printf %s ''\"\"${{ search_space.x }}",
    "# it's a comment\nprintf %s ${{search_space.x}}",
    "true \\' ; : ' ' ; printf %s ${{search_space.x}}",
    "(cat <<< 'it' > /dev/null; printf %s ${{search_space.x}})",
    "X='#'; : ${#X} a#b' ' ; printf %s ${{search_space.x}}",
]


def space(*values: Any) -> SearchSpace:
    return space_reading.read({"x": {"type": "choice", "values": list(values)}}, ("search_space",))


def filled(command: str, value: Any, among: SearchSpace | None = None) -> str:
    among = among or space(value)
    trial_command.check(command, among, {})
    return trial_command.filled(command, among, {}, {"x": value})


def bash(command: str) -> str:
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    return done.stdout


def test_plain_values_are_put_in_as_they_are() -> None:
    assert filled("train --x=${{search_space.x}}", 0.001) == "train --x=0.001"
    assert filled("train ${{ search_space.x }}", "relu") == "train relu"
    assert filled("train ${{search_space.x}}", True) == "train true"


@pytest.mark.parametrize("command", PLACES)
def test_hostile_values_stay_one_word_wherever_they_stand(command: str) -> None:
    bash_path = shutil.which("bash")
    assert bash_path
    program = "; printf '\\0'; ".join(f"( {filled(command, value)}\n)" for value in HOSTILE)
    # A substitution drops the newlines at its end; none of the values ends in one.
    assert bash(program).split("\0") == HOSTILE


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.text(alphabet="a '\"\\$`{}[]()#;&|\n!*~=<>", max_size=8), min_size=20, max_size=40)
)
def test_any_value_comes_out_of_the_shell_as_it_was(values: list[str]) -> None:
    # The dot keeps newlines at the end.
    program = "; ".join(
        filled(command, value)
        for value in values
        for command in (
            "printf '%s\\0' ${{search_space.x}}",
            "printf '%s\\0' \"${{search_space.x}}\"",
            "printf '%s\\0' '${{search_space.x}}'",
        )
    )
    assert bash(program).split("\0")[:-1] == [value for value in values for _ in range(3)]


@pytest.mark.parametrize("command", PLACES)
def test_no_value_opens_a_bracket_that_the_worker_reads(command: str) -> None:
    for value in HOSTILE:
        text = filled(f"$[[{command}]]", value)
        assert "${{" not in text
        assert list(brackets.contents(text, "$[[", "]]")) == [text[3:-2]]


@pytest.mark.parametrize(
    "command",
    [
        "cat <<EOF\n${{search_space.x}}\nEOF",
        "echo `printf ${{search_space.x}}`",
        "true # ${{search_space.x}}",
        "echo \\${{search_space.x}}",
    ],
)
def test_places_without_quotes_take_plain_values_alone(command: str) -> None:
    assert "relu" in filled(command, "relu")
    with pytest.raises(InvalidSpec, match="can't quote"):
        filled(command, "a\nb")


NESTED = {
    "model": {
        "type": "choice",
        "values": [
            {"kind": "mlp", "width": {"type": "randint", "upper": 9}},
            {"kind": "cnn", "depth": {"type": "choice", "values": [2, 3]}},
        ],
    }
}


def nested() -> SearchSpace:
    return space_reading.read(NESTED, ("search_space",))


def test_parts_of_the_command_go_with_the_mapping_that_was_chosen() -> None:
    command = (
        "train --kind ${{search_space.model.kind}} $[[--width ${{search_space.model.width}}]] "
        "$[[--depth ${{search_space.model.depth}}]] $[[--data ${{inputs.data}}]]"
    )
    trial_command.check(command, nested(), {})
    point: dict[str, Any] = {"model": {"kind": "mlp", "width": 4}}
    text = trial_command.filled(command, nested(), {}, point)
    assert text == "train --kind mlp $[[--width 4]]  $[[--data ${{inputs.data}}]]"


def test_a_mapping_is_put_in_as_json() -> None:
    text = trial_command.filled(
        "train ${{search_space.model}}", nested(), {}, {"model": {"kind": "cnn", "depth": 2}}
    )
    assert text == "train '" + '{"kind": "cnn", "depth": 2}' + "'"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("x ${{search_space.model.width}}", "only some values"),
        ("x ${{search_space.model.heigth}}", "no value of `model` has it"),
        ("x ${{search_space.modle}}", "no `modle`"),
        ("x $AZUREML_SWEEP_mod", "does not use"),
    ],
)
def test_a_command_that_does_not_go_with_its_space_is_refused(command: str, words: str) -> None:
    with pytest.raises(InvalidSpec, match=words):
        trial_command.check(command, nested(), {})


def test_a_command_may_read_the_variable_instead() -> None:
    trial_command.check('train "$AZUREML_SWEEP_model"', nested(), {})


def test_an_input_of_the_same_name_stays_an_input() -> None:
    command = "x ${{inputs.x}} ${{search_space.x}}"
    text = trial_command.filled(command, space(1), {"x": 5}, {"x": 1})
    assert text == "x ${{inputs.x}} 1"


def test_a_command_with_very_many_expressions_is_refused_in_time() -> None:
    with pytest.raises(InvalidSpec, match="more than 1000 places"):
        trial_command.check("$[[${{search_space.x}}]]" * 5000, space(1), {})
    trial_command.check("x ${{search_space.x}} " + "$[[a]] ' \" " * 5000, space(1), {})
