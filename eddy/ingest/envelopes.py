"""Envelopes of Debezium: the changes of a table in them.

An envelope is a row with an operation, and with rows in its other columns: the row before, the row after, the key of
the message. docs/guide/semantics.md (Tables) says which changes follow from which envelope.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from eddy.ingest.arrivals import Rows
from eddy.ingest.changes import DELETES, UPSERTS, ChangeReader, Mask, TableChanges, comparable, is_one_of, is_true
from eddy.ingest.tables import arrow_table, checked_rows
from eddy.ingest.validation import checked_ticks
from eddy.streams.keyed import OP_COLUMN, KeyedInput
from stairs.errors import InputError
from stairs.plain_types import from_plain, merged, plain, taken

MESSAGE, TRUNCATION = "m", "t"
"""Operations that name no row: a message of the application, and the removal of all rows."""
BEFORE, AFTER, KEY, SOURCE = "before", "after", "key", "source"
"""Columns of an envelope: the row before, the row after, the key of the message, and where the change comes from."""
POSITION, FILE, POSITION_BITS = "pos", "file", 40
"""In a source of MySQL: the position in a file of the log; the name of the file, which ends with its number. The bits
of a version that are for the position."""


class _Part(NamedTuple):
    """The rows within a column of envelopes.

    known   bool[envelopes], which have a row there
    rows    these rows, in order
    """

    known: Mask
    rows: pa.RecordBatch

    def of(self, chosen: Mask) -> pa.RecordBatch:
        """Return the rows of the chosen envelopes, which have one."""
        return taken(self.rows, np.cumsum(self.known)[chosen] - 1)


class EnvelopeReader(ChangeReader):
    """Reads the changes that a user pushes for one table as envelopes."""

    def __init__(self, table: KeyedInput) -> None:
        super().__init__(table)
        key = pa.schema([table.schema.field(column) for column in table.keys])
        self._parts = {AFTER: table.schema, BEFORE: key, KEY: key}
        self._schema = pa.schema([(OP_COLUMN, pa.string())])

    def _changes(self, rows: object) -> TableChanges:
        """Return the changes that envelopes say. Keys are not checked.

        An upsert whose envelope has another key before than after is a delete and an upsert. An envelope without an
        operation and a row after it is that of a message without a value, which deletes its key.
        """
        ops, parts, versions = self._envelopes(rows)
        after, before = parts[AFTER], parts[BEFORE]
        valueless = is_true(ops.is_null()) & ~after.known
        # With versions, the delete before a message without a value has said it already.
        skipped = valueless & (versions is not None)
        deletes = is_one_of(ops, DELETES) | (valueless & ~skipped)
        upserts, truncates = is_one_of(ops, UPSERTS), is_one_of(ops, (TRUNCATION,))
        if truncates.any():
            self.refuse(
                truncates,
                "is 't', the truncation of the table, whose rows the change does not name; push a delete for each row,"
                " or let Debezium leave truncations out (skipped.operations=t)",
            )
        known = deletes | upserts | skipped | is_one_of(ops, (MESSAGE,))
        self.require_known(ops, known, "an envelope of Debezium has c, r, u, d, t or m")
        if (upserts & ~after.known).any():
            self.refuse(upserts & ~after.known, "is an upsert without a row 'after'; push the envelopes whole")
        moved = upserts & before.known
        moved[moved] = self._differs(before.of(moved), after.of(moved))
        old, new = self._keys(parts, deletes | moved), after.of(upserts)
        of_old, of_new = np.flatnonzero(deletes | moved), np.flatnonzero(upserts)
        places = np.argsort(np.concatenate([2 * of_old, 2 * of_new + 1]))
        both = [merged([left, right]) for left, right in zip(old.columns, new.columns, strict=True)]
        batch = taken(pa.RecordBatch.from_arrays(both, schema=self.table.schema), places)
        ends, sources = places < len(of_old), np.concatenate([of_old, of_new])[places]
        if versions is not None:
            versions = self._checked(versions, sources)
        return TableChanges(batch, ends if ends.any() else None, len(ops), sources, versions)

    def _checked(self, versions: pa.Array, sources: Rows) -> Rows:
        """Return the versions of changes from those of envelopes. Raises InputError for a change without one."""
        used = versions.take(pa.array(sources))
        if used.null_count:
            row = int(sources[np.flatnonzero(is_true(used.is_null()))[0]])
            raise InputError(
                f"{self.table.place}: row {row} of the push has no version: neither its {SOURCE!r} nor the envelope has"
                f" a number {self._version!r}; push the envelopes whole"
            )
        name = str(self._version)
        return checked_ticks(self.table.place, name, "version", pa.record_batch([used], [name]), pa.int64())

    def _envelopes(self, rows: object) -> tuple[pa.Array, dict[str, _Part], pa.Array | None]:
        """Return the operations of envelopes, their rows, and their versions if the table has some.

        What is missing is null, and the rest is left out.
        """
        place, table = self.table.place, arrow_table(rows, self.table.place)
        wanted = (*self._parts, OP_COLUMN, *(() if self._version is None else (SOURCE, self._version)))
        columns: dict[str, Any]
        if table is not None:
            doubled = [name for name in wanted if table.schema.names.count(name) > 1]
            if doubled:
                raise InputError(f"{place}: column {doubled[0]!r} occurs twice in {table.schema.names}")
            columns, n = {name: table.column(name) for name in wanted if name in table.schema.names}, table.num_rows
        elif isinstance(rows, Sequence) and not isinstance(rows, str | bytes):
            for k, row in enumerate(rows):
                if not isinstance(row, Mapping):
                    raise InputError(
                        f"{place}: row {k} of the push is {row!r}, no envelope of Debezium; for a message without"
                        " a value push {'key': …} with the key of the message"
                    )
            given = set().union(*rows)
            columns, n = {name: [row.get(name) for row in rows] for name in wanted if name in given}, len(rows)
        elif isinstance(rows, Mapping) or hasattr(rows, "columns"):
            frame: Any = rows
            columns = {name: frame[name] for name in wanted if name in frame}
            for name, values in columns.items():
                if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__len__"):
                    raise InputError(
                        f"{place}: column {name!r} is {values!r}; give a sequence with a value for each row"
                    )
            n = max(map(len, columns.values()), default=0)
        else:
            raise InputError(
                f"{place}: cannot read envelopes of Debezium from {type(rows).__name__}; push dicts, "
                "a DataFrame or an Arrow table"
            )
        if n and columns.keys() <= {BEFORE}:
            raise InputError(
                f"{place}: the rows have no column {OP_COLUMN!r}, {AFTER!r} or {KEY!r}; push envelopes of"
                " Debezium, the payload of its messages; rows without an envelope need ops='column' or no ops"
            )
        nulls = pa.nulls(n)
        ops = columns.get(OP_COLUMN, nulls)
        if not isinstance(ops, pa.Array | pa.ChunkedArray):
            ops = [None if _is_missing(operation) else operation for operation in ops]
        ops = checked_rows({OP_COLUMN: ops}, self._schema, place).column(0)
        parts = {column: self._part(columns.get(column, nulls), column) for column in self._parts}
        lengths = {OP_COLUMN: len(ops)} | {column: len(part.known) for column, part in parts.items()}
        if len(set(lengths.values())) > 1:
            raise InputError(f"{place}: the columns have different lengths: {lengths}")
        return ops, parts, self._versions(columns, n)

    def _versions(self, columns: Mapping[str, Any], n: int) -> pa.Array | None:
        """Return the versions of n envelopes: what their source says, or the envelope; None for a table without."""
        name = self._version
        if name is None:
            return None
        place, schema = self.table.place, pa.schema([(name, pa.int64())])
        source, envelope_versions = (
            columns.get(SOURCE),
            checked_rows({name: columns.get(name, pa.nulls(n))}, schema, place).column(0),
        )
        if isinstance(source, pa.Array | pa.ChunkedArray):
            held = checked_rows({SOURCE: source}, pa.schema([(SOURCE, source.type)]), place).column(0)
            fields = held.type.names if pt.is_struct(held.type) else []
            inner, files = (pc.struct_field(held, field) if field in fields else pa.nulls(n) for field in (name, FILE))
        else:
            values = [
                None if _is_missing(struct) else struct for struct in (source if source is not None else [None] * n)
            ]
            inner, files = (
                [struct.get(part) if isinstance(struct, Mapping) else None for struct in values]
                for part in (name, FILE)
            )
        source_versions = checked_rows({name: inner}, schema, place).column(0)
        if name == POSITION:
            source_versions = self._in_log(
                source_versions, checked_rows({FILE: files}, pa.schema([(FILE, pa.string())]), place).column(0)
            )
        return pc.coalesce(source_versions, envelope_versions)

    def _in_log(self, positions: pa.Array, files: pa.Array) -> pa.Array:
        """Return positions in files of a log as positions in the log. Raises InputError for a file without a number."""
        numbers = pc.struct_field(pc.extract_regex(files, r"(?P<number>[0-9]{1,6})$"), "number").cast(pa.int64())
        lacking = is_true(pc.and_(positions.is_valid(), numbers.is_null()))
        if lacking.any():
            row = int(np.flatnonzero(lacking)[0])
            raise InputError(
                f"{self.table.place}: {FILE!r} in the {SOURCE!r} of row {row} of the push is {files[row].as_py()!r};"
                f" version={POSITION!r} is a position in a file of the log, whose name ends with its number; push the"
                " envelopes whole, or take version='ts_ms'"
            )
        return pc.add(pc.shift_left(numbers, POSITION_BITS), positions)

    def _part(self, values: Any, column: str) -> _Part:
        """Return the rows that a column of envelopes has."""
        place, schema = self.table.place, self._parts[column]
        if isinstance(values, pa.Array | pa.ChunkedArray):
            structs = checked_rows({column: values}, pa.schema([(column, values.type)]), place).column(0)
            known = is_true(structs.is_valid())
            if not known.any():
                return _Part(known, checked_rows([], schema, place))
            if not pt.is_struct(structs.type):
                raise InputError(
                    f"{place}: column {column!r} is {structs.type}; in an envelope of Debezium it is a struct of the"
                    " columns of the table"
                )
            names = structs.type.names
            if column == BEFORE and not set(schema.names) <= set(names):
                return _Part(np.zeros(len(structs), bool), checked_rows([], schema, place))
            fields = taken(structs, np.flatnonzero(known)).flatten()
            return _Part(known, checked_rows(dict(zip(names, fields, strict=True)), schema, place))
        rows = [None if _is_missing(value) else value for value in values]
        for k, row in enumerate(rows):
            if row is not None and not isinstance(row, Mapping):
                hint = ", which json.loads makes of a text" if isinstance(row, str | bytes) else ""
                raise InputError(f"{place}: {column!r} of row {k} of the push is {row!r}; give a dict or None{hint}")
            missing = [] if row is None else [name for name in schema.names if name not in row]
            if missing and column == BEFORE:
                # Some connectors write the row before without its key; the key of the message has it.
                rows[k] = None
            elif missing:
                raise InputError(f"{place}: column {missing[0]!r} is missing in {column!r} of row {k}, {row}")
        known = np.array([row is not None for row in rows], bool)
        return _Part(known, checked_rows([row for row in rows if row is not None], schema, place))

    def _differs(self, before: pa.RecordBatch, after: pa.RecordBatch) -> Mask:
        """Return for which rows the key before has a value in each column, and is another than that after."""
        known, differs = np.ones(len(after), bool), np.zeros(len(after), bool)
        for column in self.table.keys:
            old, new = comparable(before.column(column)), comparable(after.column(column))
            known &= is_true(old.is_valid())
            differs |= is_true(pc.not_equal(old, new).fill_null(True))
        return known & differs

    def _keys(self, parts: Mapping[str, _Part], wanted: Mask) -> pa.RecordBatch:
        """Return rows with nothing but the keys before the wanted changes: those of the row before, or the message."""
        before, key = parts[BEFORE], parts[KEY]
        if (absent := wanted & ~before.known & ~key.known).any():
            self.refuse(
                absent,
                f"is a delete, and neither {BEFORE!r} nor {KEY!r} has the key; push the key of the message as a column"
                f" {KEY!r}",
            )
        first, then = wanted & before.known, wanted & ~before.known
        places = np.argsort(np.concatenate([np.flatnonzero(first), np.flatnonzero(then)]))
        rows = before.of(first), key.of(then)
        columns = [
            taken(merged([part.column(field.name) for part in rows]), places)
            if field.name in self.table.keys
            else from_plain(pa.nulls(len(places), plain(field.type)), field.type)
            for field in self.table.schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.table.schema)


def _is_missing(value: object) -> bool:
    """Return whether a Python value stands for none; frames of pandas have several that do."""
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )
