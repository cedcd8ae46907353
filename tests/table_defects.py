"""Mistakes of `tests/model_defects.py` that the fuzzer finds in queries over tables, for `tests/test_mutations.py`."""

from __future__ import annotations

from tests.defects import Defect
from tests.model_defects import MODELS

_CHOSEN = (
    ("tables", "a replaced version takes no result back", "jisc"),
    ("tables", "a -U is a change", "eddy"),
    ("tables", "the first change of a key arrives in an atomic push", "cacq"),
    ("tables", "a result that a change takes back has no sign in its group", "symmetric-hash"),
    ("tables", "a departure takes final results back", "mjoin"),
    ("branches of tables", "all changes of a key arrive", "symmetric-hash"),
    ("branches of tables", "an update is a delete and an insert", "symmetric-hash"),
    ("keys of results", "the first row of a key is left", "symmetric-hash"),
)
TABLE_DEFECTS = tuple(
    Defect(f"of {model}: {what}", (MODELS[model].defects[what],), strategy, queries="tables")
    for model, what, strategy in _CHOSEN
)
