"""Conditions on rows: validated when a query is made, evaluated one batch at a time.

A condition is an Arrow expression or a function of a batch. A filter is one condition, or a list of them that must all
hold; `eddy.filters.adaptive` chooses their order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eddy.filters.faults import FAILURES, others, reasons
from stairs.errors import InputError, QueryError
from stairs.plain_types import no_rows, taken

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Predicate:
    """A condition with a name, and the columns that it reads.

    function  a function of a pyarrow.RecordBatch that returns a boolean for each row (a boolean Arrow array, chunked or
              not, or a numpy array of bool; null means false), or a pyarrow.compute.Expression
    columns   the columns that the function gets, in this order; None = all columns of the stream. Omit `columns` for
              an expression
    name      its name in figures, errors and snapshots; None = the qualified name of the function, or the expression

    The answer for a row must depend on this row only: the function is called on any set of rows, and on some rows
    twice. Raises QueryError for anything but a function or an expression.

    >>> Predicate(pc.field("a") > 3, name="large").name
    'large'
    """

    function: Callable[[pa.RecordBatch], Any] | pc.Expression
    columns: Sequence[str] | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.function, pc.Expression) and not callable(self.function):
            raise QueryError(f"a predicate must be a function of a batch or an expression, not {self.function!r}")
        if self.name is not None and (not isinstance(self.name, str) or not self.name):
            raise QueryError(f"the name of a predicate must be a string that is not empty, not {self.name!r}")
        if self.columns is None:
            return
        if isinstance(self.columns, str) or not all(isinstance(column, str) for column in self.columns):
            raise QueryError(f"predicate {self.title!r}: columns must be a list of names, not {self.columns!r}")
        if isinstance(self.function, pc.Expression):
            raise QueryError(f"predicate {self.title!r}: the columns of an expression are known; leave columns out")
        if not self.columns or len(set(self.columns)) < len(self.columns):
            fault = "has a name twice" if self.columns else "is empty"
            raise QueryError(f"predicate {self.title!r}: columns {fault}; list each column that it reads once")

    @property
    def title(self) -> str:
        """The name, or the default name."""
        if self.name is not None:
            return self.name
        if isinstance(self.function, pc.Expression):
            return str(self.function)
        named = self.function
        while hasattr(named, "func"):  # functools.partial
            named = named.func
        return str(getattr(named, "__qualname__", type(named).__qualname__))

    def read(self, schema: pa.Schema) -> list[str]:
        """Return the columns of the schema that the condition reads, in order. O(columns) for an expression."""
        if isinstance(self.function, pc.Expression):
            return [schema.names[k] for k in columns_read(self.function, schema)]
        wanted = schema.names if self.columns is None else self.columns
        return [name for name in schema.names if name in wanted]


Condition: TypeAlias = Predicate | pc.Expression | Callable[[pa.RecordBatch], Any]
Filter: TypeAlias = Condition | Sequence[Condition]
"""The type of a filter argument: one condition, or several that must all hold."""


def conditions(
    given: Filter | None, schema: pa.Schema | None, what: str, declared: bool = False
) -> tuple[Predicate, ...]:
    """Return the conditions of a filter, each with a unique name; none for None and an empty list.

    schema    the columns that the conditions must fit, None if they are not known yet
    what      the name of the filter in errors
    declared  True: functions must declare the columns that they read

    Raises QueryError for anything but a condition, and for a condition that does not fit the schema.
    """
    listed = isinstance(given, list | tuple)
    predicates: list[Predicate] = []
    taken: set[str] = set()
    for condition in given if listed else () if given is None else (given,):  # type: ignore[union-attr]
        place = f"{what}, condition {len(predicates) + 1}," if listed else what
        if not isinstance(condition, Predicate):
            if not isinstance(condition, pc.Expression) and (not callable(condition) or isinstance(condition, type)):
                raise QueryError(
                    f"{place} must be a pyarrow.compute.Expression such as pyarrow.compute.field('x') > 3, a function"
                    f" of a batch, an eddy.Predicate, or a list of these, not {type(condition).__name__}"
                )
            condition = Predicate(condition)
        _check(condition, schema, place, declared)
        title, times = condition.title, 1
        while title in taken:
            times += 1
            title = f"{condition.title} #{times}"
        taken.add(title)
        predicates.append(replace(condition, name=title))
    return tuple(predicates)


def _check(condition: Predicate, schema: pa.Schema | None, what: str, declared: bool) -> None:
    if isinstance(condition.function, pc.Expression):
        if schema is not None:
            check_expression(condition.function, schema, what)
        return
    if declared and condition.columns is None:
        raise QueryError(
            f"{what} is the function {condition.title}, whose columns are not known: write"
            " eddy.Predicate(function, columns=['stream.column', …])"
        )
    unknown = [column for column in condition.columns or () if schema is not None and column not in schema.names]
    if unknown and schema is not None:
        raise QueryError(f"{what} reads {unknown[0]!r}, which is no column; the columns are {', '.join(schema.names)}")


# Expressions


def project(expressions: Mapping[str, pc.Expression], table: pa.Table) -> pa.Table:
    """Return a table of the values of expressions for each row of a table, by name. Raises an error of Arrow."""
    # Imported at the first expression of a query, because the import also imports an installed pandas: 0.3 s.
    from pyarrow.acero import Declaration, ProjectNodeOptions, TableSourceNodeOptions

    source = Declaration("table_source", TableSourceNodeOptions(table))
    options = ProjectNodeOptions(list(expressions.values()), list(expressions))
    return Declaration("project", options, inputs=[source]).to_table(use_threads=False)


def evaluated(expression: pc.Expression, table: pa.Table) -> pa.ChunkedArray:
    """Return the value of an expression for each row of a table."""
    # Computes only the column of the expression: filtering the table would copy columns that have no filter kernel.
    return project({"accepted": expression}, table).column("accepted")


def no_rows_of(schema: pa.Schema) -> pa.Table:
    """Return a table of a schema without rows."""
    return pa.Table.from_arrays([no_rows(kind) for kind in schema.types], schema=schema)


_SAMPLES: tuple[tuple[Any, ...], ...] = (
    (None,),
    (1, "1", b"1", True, [], {}),
    (7, "2020-02-02", b"seven", False, [], {}),
)
"""Values of the rows on which an expression is tried: each column has the first value that fits its type."""


def _sample(kind: pa.DataType, values: tuple[Any, ...]) -> pa.Array:
    for value in values:
        try:
            return pa.array([value], kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            continue
    return pa.nulls(1, kind)


def expression_type(expression: pc.Expression, schema: pa.Schema) -> pa.DataType:
    """Return the type of an expression on rows of a schema. Raises an error of Arrow if the types do not fit.

    Arrow finds some types that do not fit, invalid regular expressions, and constants without a value only when Arrow
    evaluates a row. So the expression does not fit if it fails on a row of nulls and on other rows for one reason.
    """
    kind = evaluated(expression, no_rows_of(schema)).type
    read = set(columns_read(expression, schema))
    kinds = [column_type if k in read else pa.bool_() for k, column_type in enumerate(schema.types)]
    fault: Exception | None = None
    for values in _SAMPLES:
        rows = pa.Table.from_arrays([_sample(column_type, values) for column_type in kinds], names=schema.names)
        try:
            rows.validate(full=True)
        except pa.ArrowException:
            return kind  # Arrow cannot make values of every type
        try:
            evaluated(expression, rows)
        except FAILURES as error:
            if fault is not None and str(error) != str(fault):
                return kind
            fault = error
        else:
            return kind
    assert fault is not None
    raise fault


def check_expression(expression: pc.Expression, schema: pa.Schema, what: str) -> None:
    """Raise QueryError unless the expression returns a boolean on rows of the schema."""
    columns = f"the columns are {', '.join(schema.names)}"
    try:
        kind = expression_type(expression, schema)
    except FAILURES as error:
        raise QueryError(f"{what} does not fit: {str(error).splitlines()[0]}; {columns}") from error
    if not (pa.types.is_boolean(kind) or pa.types.is_null(kind)):
        raise QueryError(f"{what} returns {kind}, not a boolean; {columns}")


def columns_read(expression: pc.Expression, schema: pa.Schema) -> list[int]:
    """Return the columns without which an expression on rows of the schema fails. O(columns) evaluations."""
    read, rows = [], no_rows_of(schema)
    for k in range(len(schema)):
        try:
            evaluated(expression, rows.remove_column(k))
        except FAILURES:
            read.append(k)
    return read


# Masks


def _as_mask(accepted: pa.Array | pa.ChunkedArray) -> Mask:
    """Return Arrow booleans as bool[n], null as false."""
    if isinstance(accepted, pa.ChunkedArray):
        accepted = accepted.combine_chunks()
    filled = accepted.cast(pa.bool_()).fill_null(False)
    return np.asarray(filled.cast(pa.uint8())).view(np.bool_)


def mask_of(predicate: Predicate, batch: pa.RecordBatch, what: str) -> tuple[Mask, dict[int, str]]:
    """Return bool[rows], whether the predicate is true, and by row the reason why an expression fails.

    The predicate counts as true on a row on which the expression fails.

    Raises InputError for a function that fails; `what` names the predicate.
    """
    if isinstance(predicate.function, pc.Expression):
        return _expression_mask(predicate.function, batch, what)
    given = batch if predicate.columns is None else batch.select(list(predicate.columns))
    try:
        answer = predicate.function(given)
    except Exception as error:
        raise InputError(f"{what}: {type(error).__name__}: {error}") from error
    if isinstance(answer, np.ndarray) and answer.dtype == np.bool_ and answer.ndim == 1:
        mask: Mask = answer
    elif isinstance(answer, pa.Array | pa.ChunkedArray) and (
        pa.types.is_boolean(answer.type) or pa.types.is_null(answer.type)
    ):
        mask = _as_mask(answer)
    else:
        kind = getattr(answer, "type", getattr(answer, "dtype", None))
        shape = f" of shape {answer.shape}" if isinstance(answer, np.ndarray) else ""
        raise InputError(
            f"{what}: it returned {type(answer).__name__}{'' if kind is None else f' of {kind}'}{shape}; return a"
            " boolean pyarrow array or a one-dimensional numpy array of bool"
        )
    if len(mask) != len(batch):
        raise InputError(f"{what}: it returned {len(mask)} values for {len(batch)} rows; return one for each row")
    return mask, {}


def _expression_mask(expression: pc.Expression, batch: pa.RecordBatch, what: str) -> tuple[Mask, dict[int, str]]:
    rows = pa.Table.from_batches([batch])
    try:
        return _as_mask(evaluated(expression, rows)), {}
    except FAILURES:
        pass
    try:
        failing = reasons(lambda part: evaluated(expression, part), rows)
        rest = others(failing, len(batch))
        mask = np.ones(len(batch), np.bool_)
        if len(rest):
            mask[rest] = _as_mask(evaluated(expression, pa.Table.from_batches([taken(batch, rest)])))
    except FAILURES as error:
        # The error does not come from single rows: a column is missing, or Arrow has no kernel for a type.
        raise InputError(f"{what}: {error}") from error
    return mask, failing
