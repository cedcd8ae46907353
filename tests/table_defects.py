"""Mistakes of `tests/model_defects.py` that the fuzzer finds in queries over tables, for `tests/test_mutations.py`."""

from __future__ import annotations

from tests.defects import Defect
from tests.model_defects import MODELS

_CHOSEN = (
    ("tables", "a replaced version takes no result back"),
    ("tables", "a -U is a change"),
    ("tables", "the first change of a key arrives in an atomic push"),
    ("tables", "a result that a change takes back has no sign in its group"),
    ("tables", "a departure takes final results back"),
    ("branches of tables", "all changes of a key arrive"),
    ("branches of tables", "an update is a delete and an insert"),
    ("keys of results", "the first row of a key is left"),
    ("first rows", "a pair of equal rows is put out"),
)
TABLE_DEFECTS = tuple(
    Defect(f"of {model}: {what}", (MODELS[model].defects[what],), "symmetric-hash", queries="tables")
    for model, what in _CHOSEN
)
