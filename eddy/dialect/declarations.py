"""Declarations: CREATE TABLE, as in Flink, as an input of queries.

    CREATE TABLE bids (item BIGINT, price DECIMAL(10, 2), at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '5' SECOND)
    CREATE TABLE items (id BIGINT, kind STRING, PRIMARY KEY (id) NOT ENFORCED)

Rows without a key are those of a stream, rows with one those of a table, and rows with a key and a watermark versions.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

import pyarrow as pa
from sqlglot import exp

from eddy.dialect.names import known
from eddy.expressions.grammar import printed
from eddy.expressions.source import StatementText, parse
from eddy.expressions.spans import seconds_of
from eddy.expressions.trees import bare
from eddy.expressions.types import type_of
from eddy.streams.event_time import unified_time
from eddy.streams.stream import Stream
from eddy.streams.table import Table
from eddy.streams.versioned_table import VersionedTable
from stairs.errors import QueryError

_FORM = (
    "CREATE TABLE name (column TYPE, …, PRIMARY KEY (column) NOT ENFORCED, WATERMARK FOR column AS column - INTERVAL …)"
)
_DECLARED = "name", "schema", "key", "time", "lateness"


def create_table(text: str, **options: Any) -> Stream:
    """Return the input that a CREATE TABLE declares: a `Stream`, a `Table` or a `VersionedTable`.

    text      PRIMARY KEY (k) NOT ENFORCED is the key, WATERMARK FOR t AS t - INTERVAL '5' SECOND the time and lateness
    options   what SQL cannot say: window, filter, late, ops, version, as the class takes it

    Raises SqlError with line and column for other text, and QueryError for options that do not fit.

    >>> create_table("CREATE TABLE items (id BIGINT, kind STRING, PRIMARY KEY (id) NOT ENFORCED)").keys
    ('id',)
    """
    given = next((name for name in _DECLARED if name in options), None)
    if given is not None:
        raise QueryError(f"create_table: leave {given} out: the text declares it")
    source = StatementText(text)
    table = declared(source, **options)
    if table.options:
        where = next(iter(table.options.values())).node
        raise source.error(where, "WITH (…) is not supported in CREATE TABLE: rows come by push; leave it out")
    if table.input is None:
        raise source.error(None, f"the columns are missing; a declaration is {_FORM}")
    return table.input


class DeclaredOption(NamedTuple):
    """An option of WITH (…): its text, and its place."""

    text: str
    node: exp.Expression


class DeclaredTable(NamedTuple):
    """The content of a CREATE TABLE.

    input    the input, None without columns
    key      the columns of PRIMARY KEY
    options  what WITH (…) has, by name
    """

    name: str
    input: Stream | None
    key: tuple[str, ...]
    options: dict[str, DeclaredOption]


def declared(source: StatementText, **options: Any) -> DeclaredTable:
    """Return what a CREATE TABLE declares, of which `create_table` describes the arguments and errors."""
    tree = parse(source)
    if not isinstance(tree, exp.Create) or str(tree.args.get("kind")).upper() != "TABLE":
        raise source.error(tree, f"a declaration is {_FORM}")
    columns = tree.this if isinstance(tree.this, exp.Schema) else None
    if tree.args.get("expression") is not None:
        raise source.error(tree, f"the columns are missing; a declaration is {_FORM}")
    known_parts = ("this", "kind", "properties")
    more = next((name for name, value in tree.args.items() if value and name not in known_parts), None)
    if more is not None:
        raise source.error(tree, f"{more.upper()} is not supported in CREATE TABLE; leave it out")
    given = _options(tree, source)
    table = tree.this if columns is None else columns.this
    if table.args.get("db") is not None:
        raise source.error(table, "a name of a table has no parts; leave the part before the point out")
    name = table.name
    if columns is None:
        return DeclaredTable(name, None, (), given)
    declaration = _Declaration(source)
    for definition in sorted(columns.expressions, key=lambda part: not isinstance(part, exp.ColumnDef)):
        declaration.read(definition)
    schema = pa.schema(list(declaration.fields.values()))
    kind: Any = Stream if not declaration.key else VersionedTable if declaration.time else Table
    try:
        return DeclaredTable(name, kind(name, schema, **{**declaration.arguments, **options}), declaration.key, given)
    except QueryError as problem:
        if options:
            raise
        raise source.error(tree, str(problem)) from problem


def _options(tree: exp.Create, source: StatementText) -> dict[str, DeclaredOption]:
    options: dict[str, DeclaredOption] = {}
    properties = tree.args.get("properties")
    for node in [] if properties is None else properties.expressions:
        name, value = (node.this, node.args.get("value")) if type(node) is exp.Property else (None, None)
        if not isinstance(name, exp.Literal) or not isinstance(value, exp.Literal):
            # Without its value, which may be a password.
            what = node.name if name is None else name.name
            raise source.error(node, f"WITH (… {what} …) is not supported; an option is 'name' = 'text'")
        if name.name in options:
            raise source.error(name, f"option {name.name!r} is given twice")
        options[name.name] = DeclaredOption(value.name, name)
    return options


class _Declaration:
    """The parts of a CREATE TABLE that were read so far, its columns first."""

    def __init__(self, source: StatementText) -> None:
        self.source = source
        self.fields: dict[str, pa.Field] = {}
        self.key: tuple[str, ...] = ()
        self.time: str | None = None
        self.lateness: timedelta | int | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the input, but for its name and its columns."""
        given = {"key": self.key or None, "time": self.time, "lateness": self.lateness}
        return {name: argument for name, argument in given.items() if argument is not None}

    def read(self, node: exp.Expression) -> None:
        """Read a column, the key or the watermark. Raises SqlError."""
        if isinstance(node, exp.ColumnDef):
            self._column(node)
        elif isinstance(node, exp.PrimaryKey):
            self._primary_key(node)
        elif isinstance(node, exp.Anonymous) and node.this == "WATERMARK":
            self._watermark(node)
        else:
            raise self.source.error(node, f"{printed(node)} is not supported here; a declaration is {_FORM}")

    def _column(self, node: exp.ColumnDef) -> None:
        if node.name in self.fields:
            raise self.source.error(node, f"two columns are named {node.name!r}; give each its own name")
        kind, nullable = node.args.get("kind"), True
        for constraint in node.args.get("constraints") or []:
            if not isinstance(constraint.kind, exp.NotNullColumnConstraint):
                key = isinstance(constraint.kind, exp.PrimaryKeyColumnConstraint)
                word = "PRIMARY KEY of a column" if key else printed(constraint)
                raise self.source.error(node, f"column {node.name}: {word} is not supported; a declaration is {_FORM}")
            nullable = bool(constraint.kind.args.get("allow_null"))
        if kind is None:
            raise self.source.error(node, f"column {node.name} has no type, such as {node.name} BIGINT")
        self.fields[node.name] = pa.field(node.name, type_of(kind, self.source), nullable)

    def _primary_key(self, node: exp.PrimaryKey) -> None:
        if self.key:
            raise self.source.error(node, "PRIMARY KEY stands there twice")
        if [str(option).upper() for option in node.args.get("options") or []] != ["NOT ENFORCED"]:
            raise self.source.error(
                node,
                "write PRIMARY KEY (…) NOT ENFORCED: a row with a known key is no error, it replaces the other one",
            )
        self.key = tuple(self._name(column) for column in node.expressions)

    def _watermark(self, node: exp.Anonymous) -> None:
        if self.time is not None:
            raise self.source.error(node, "WATERMARK stands there twice")
        self.time = self._name(node.expressions[0])
        kind = self.fields[self.time].type
        if unified_time([kind]) is None:
            raise self.source.error(
                node, f"column {self.time!r} is {kind}; an event time is an integer, a date or a timestamp"
            )
        value = bare(node.expressions[1]) if len(node.expressions) == 2 else None
        less = value.expression if isinstance(value, exp.Sub) else None
        column = value.this if isinstance(value, exp.Sub) else value
        if not isinstance(column, exp.Column) or column.table or self._name(column.this) != self.time:
            raise self.source.error(
                node, f"the watermark is the column, or the column less a span: {self.time} - INTERVAL '5' SECOND"
            )
        if isinstance(less, exp.Interval):
            ticks = seconds_of(less, self.source) * 1_000_000
            if ticks.denominator != 1:
                raise self.source.error(less, "a watermark is behind by whole microseconds")
            self.lateness = timedelta(microseconds=int(ticks))
        elif isinstance(less, exp.Literal) and not less.is_string and str(less.this).isdigit():
            self.lateness = int(str(less.this))
        elif less is not None:
            raise self.source.error(
                less, f"a watermark is behind by a constant span: {self.time} - INTERVAL '5' SECOND"
            )

    def _name(self, node: exp.Expression) -> str:
        """Return the name of a column that is declared. Raises SqlError."""
        name = known(node.name, self.fields)
        if name is None:
            have = ", ".join(self.fields)
            raise self.source.error(node, f"there is no column {node.name!r}; there are {have}")
        return name
