"""Wrong outputs: each differs, and none is what was meant."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from t1.synthesis.audit.mutations import mutants
from t1.synthesis.audit.probes import other


@given(st.binary(max_size=200))
def test_every_mutant_differs_from_the_output_and_from_the_others(content):
    contents = [mutant.content.strip() for mutant in mutants("out.txt", content)]
    assert len({content.strip(), *contents}) == len(contents) + 1


@given(st.dictionaries(st.text(max_size=5), st.integers(-9, 99) | st.booleans() | st.text(max_size=5), min_size=1))
def test_json_keeps_its_keys(value):
    content = json.dumps(value).encode()
    found = next((m for m in mutants("out.json", content) if m.name == "other values"), None)
    assert found is None or json.loads(found.content).keys() == value.keys()


def test_settings_keep_their_keys():
    first = mutants("a.ini", b"[server]\nport = 80\n")[0]
    assert first.content == b"[server]\nport = 91\n"


def test_a_program_becomes_one_that_does_nothing():
    assert mutants("a.py", b"print(1)\n")[0].content == b"pass\n"


@given(st.lists(st.integers(0, 999), min_size=2, max_size=9))
def test_other_inputs_have_other_numbers_and_fewer_lines(numbers):
    content = "".join(f"{n}\n" for n in numbers).encode()
    assert other(content) != content
    assert len(other(content).splitlines()) < len(numbers)
