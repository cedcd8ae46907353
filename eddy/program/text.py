"""The text of a program: CREATE TABLE … WITH (…), INSERT INTO … SELECT …, SET, EXECUTE STATEMENT SET BEGIN … END."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType

from eddy.dialect.declarations import DeclaredTable, declared
from eddy.dialect.statement import sql, tables_of
from eddy.dialect.union import UnionAll
from eddy.expressions.grammar import EddyDialect
from eddy.expressions.source import StatementText
from eddy.query.query import Query
from eddy.spark.types import spark_schema
from eddy.streams.stream import Stream
from stairs.errors import QueryError, SqlError

PREFIX = "join."
"""Begins the names of options of a join."""
_TARGET = re.compile(r"\w[\w-]{0,63}", re.ASCII)
_FORM = "a program has CREATE TABLE name (…) WITH (…) and INSERT INTO name SELECT …, each with a semicolon"
_SET_BEGINS = re.compile(r"\s*EXECUTE\s+STATEMENT\s+SET\s+BEGIN\b", re.IGNORECASE)


@dataclass(frozen=True)
class ProgramTable:
    """A table of a program.

    source  the text of the program in which all but this statement is blank; errors take their places from it
    """

    declared: DeclaredTable
    source: StatementText

    @property
    def name(self) -> str:
        """The name."""
        return self.declared.name

    def refused(self, option: str | None, message: str) -> SqlError:
        """Return the error about an option, at its place; about the table, if the option is None or missing."""
        given = None if option is None else self.declared.options.get(option)
        return self.source.error(
            _start(self.source) if given is None else given.node, f"table {self.name!r}: {message}"
        )


class Setting(NamedTuple):
    """An option that SET gives, and its place in the text of the program."""

    text: str
    source: StatementText
    at: int

    def refused(self, message: str) -> SqlError:
        """Return the error about the option, at its place."""
        return self.source.error(self.at, message)


@dataclass(frozen=True)
class Insertion:
    """An INSERT: a query, and the table that gets its results."""

    target: ProgramTable
    query: Query
    inputs: Mapping[str, ProgramTable]
    """The tables that the query reads, by name."""
    settings: Mapping[str, Setting]
    """The options of joins that SET gave before it."""
    source: StatementText
    together: bool
    """Whether it belongs to the statement set, whose queries are one job."""

    def refused(self, message: str) -> SqlError:
        """Return an error about the INSERT, at its place."""
        return self.source.error(_start(self.source), f"INSERT INTO {self.target.name}: {message}")


def read_program(text: str) -> list[Insertion]:
    """Return the INSERT statements of a program, with the tables that each reads.

    Raises SqlError, with line and column in the text, for a statement of another kind, for unknown tables, and for
    columns of a target that are not those of its query.
    """
    tables: dict[str, ProgramTable] = {}
    inserts: list[tuple[StatementText, Sequence[Token], bool, Mapping[str, Setting]]] = []
    settings: dict[str, Setting] = {}
    began: int | None = None
    for source, tokens in _statements(text):
        begin = _SET_BEGINS.match(source.text)
        if begin is not None:
            if began is not None or any(together for *_, together, _ in inserts):
                raise source.error(_start(source), "a program has one statement set; put all of its INSERT into it")
            began = _start(source)
            inner = list(_statements(_only(source.text, begin.end(), len(source.text))))
            if not inner:
                raise source.error(began, "BEGIN has an INSERT after it, without a semicolon between them")
            source, tokens = inner[0]
        words = [token.text.upper() for token in tokens]
        if words == ["END"] and began is not None:
            began = None
            continue
        words = words[:2]
        if began is not None and words != ["INSERT", "INTO"]:
            raise source.error(
                _start(source), f"{' '.join(words)} is not supported in a statement set, which has INSERT only"
            )
        if words[:1] == ["SET"]:
            name, option = _setting(source, tokens)
            settings = {**settings, name: option}
        elif words == ["CREATE", "TABLE"]:
            table = _table(source)
            if table.name in tables:
                raise source.error(_start(source), f"two tables are named {table.name!r}; give each its own name")
            tables[table.name] = table
        elif words == ["INSERT", "INTO"]:
            inserts.append((source, tokens, began is not None, settings))
        else:
            raise source.error(_start(source), f"{' '.join(words)} is not supported; {_FORM}")
    if began is not None:
        raise StatementText(text).error(began, "the statement set has no END; write END; after its last INSERT")
    if not inserts:
        raise SqlError(f"the program has no INSERT, so it would do nothing; {_FORM}", 1, 1)
    insertions: dict[str, Insertion] = {}
    for source, tokens, together, given in inserts:
        insert = _insertion(source, tokens, tables, together, given)
        if insert.target.name in insertions:
            raise source.error(
                _start(source), f"two INSERT go into {insert.target.name!r}; give each query its own table"
            )
        insertions[insert.target.name] = insert
    return list(insertions.values())


def _statements(text: str) -> Iterator[tuple[StatementText, Sequence[Token]]]:
    """Yield each statement with its tokens; all else in the text is blank, so that places are those in the text."""
    try:
        tokens = EddyDialect().tokenize(text)
    except SqlglotError as error:
        # Without the excerpt of the parser, which may have a password.
        source = StatementText(text)
        raise source.error(
            max(text.rfind("'"), 0), "the text cannot be split into words: a quote or a comment has no end"
        ) from error
    statement: list[Token] = []
    for token in [*tokens, None]:
        if token is not None and token.token_type != TokenType.SEMICOLON:
            statement.append(token)
        elif statement:
            yield StatementText(_only(text, statement[0].start, statement[-1].end + 1)), statement
            statement = []


def _start(source: StatementText) -> int:
    """Return the place of the first character that is not blank."""
    return len(source.text) - len(source.text.lstrip())


def _only(text: str, start: int, end: int) -> str:
    """Return a text that is blank outside of two places, with all its lines."""
    return "".join(character if character == "\n" else " " for character in text[:start]) + text[start:end]


def _table(source: StatementText) -> ProgramTable:
    """Return the table of a CREATE TABLE; its options `ops` and `version` are those of the input."""
    table = declared(source)
    options: dict[str, str] = {}
    for name in ("ops", "version"):
        if name not in table.options or table.input is None:
            continue
        options[name] = table.options[name].text
        refused = partial(ProgramTable(table, source).refused, name)
        if not table.key:
            raise refused(f"{name!r} is for a table with a PRIMARY KEY")
        if name == "version" and table.input.time is not None:
            raise refused("the WATERMARK orders the rows of this table; leave 'version' out")
        try:
            table = declared(source, **options)
        except QueryError as problem:
            raise refused(str(problem)) from problem
    return ProgramTable(table, source)


def _setting(source: StatementText, tokens: Sequence[Token]) -> tuple[str, Setting]:
    """Return the name and the text of SET 'join.…' = '…', an option of the joins after it."""
    kinds = [token.token_type for token in tokens[1:]]
    if kinds != [TokenType.STRING, TokenType.EQ, TokenType.STRING] or not tokens[1].text.startswith(PREFIX):
        raise source.error(_start(source), f"SET '{PREFIX}option' = 'value' is the form, for the joins after it")
    return tokens[1].text, Setting(tokens[3].text, source, tokens[1].start)


def _insertion(
    source: StatementText,
    tokens: Sequence[Token],
    tables: Mapping[str, ProgramTable],
    together: bool,
    settings: Mapping[str, Setting],
) -> Insertion:
    if len(tokens) < 4 or tokens[3].token_type not in (TokenType.SELECT, TokenType.WITH):
        what = tokens[3].start if len(tokens) > 3 else _start(source)
        raise source.error(
            what, "INSERT INTO name SELECT … is the form; columns go by the names that SELECT gives them"
        )
    target, select = tokens[2], _only(source.text, tokens[3].start, len(source.text))
    if target.text not in tables:
        raise source.error(target.start, f"there is no table {target.text!r}; {_have(tables)}")
    if not _TARGET.fullmatch(target.text):
        raise source.error(
            target.start,
            f"table {target.text!r}: the name is that of a directory of the checkpoint: use letters, digits, _",
        )
    inputs: dict[str, ProgramTable] = {}
    for name in tables_of(select):
        known = tables.get(name)
        if known is None:
            at = next((token.start for token in tokens[3:] if token.text == name), tokens[3].start)
            raise source.error(at, f"there is no table {name!r}; {_have(tables)}")
        if known.declared.input is None:
            raise known.refused(None, "it is read, and its columns are missing: name (column TYPE, …)")
        if name == target.text:
            raise source.error(target.start, f"table {name!r} is read and written by one query")
        inputs[name] = known
    streams = [table.declared.input for table in inputs.values() if table.declared.input is not None]
    parse = partial(sql, select, [as_spark_has_it(stream) for stream in streams])
    try:
        query = parse()
        if isinstance(query, Query) and _counts_all(query):
            query = parse(expiry="final")
    except SqlError:
        raise
    except QueryError as problem:
        raise source.error(tokens[3].start, str(problem)) from problem
    if isinstance(query, UnionAll):
        raise source.error(tokens[3].start, "UNION ALL is not one job; write each SELECT into a table of its own")
    _check_columns(tables[target.text], query, source, target.start)
    return Insertion(tables[target.text], query, inputs, settings, source, together)


def _counts_all(query: Query) -> bool:
    """Return whether the groups or first rows of a query count all results so far, as if its rows were in a file.

    Groups in windows are final anyway. Outer and as-of joins have no results that stay (`eddy.query.expiry`).
    """
    changes = query.ranking is not None if query.aggregation is None else query.aggregation.window is None
    return changes and not query.as_of and not query.branches


def _have(tables: Mapping[str, ProgramTable]) -> str:
    return f"there are {', '.join(tables)}" if tables else "the program declares none"


def as_spark_has_it(stream: Stream) -> Stream:
    """Return an input with the types in which Spark holds its columns: instants in microseconds, for instance."""
    return replace(stream, schema=spark_schema(stream.schema))


def _check_columns(target: ProgramTable, query: Query, source: StatementText, at: int) -> None:
    """Raise SqlError unless a target that declares columns has those of its query."""
    if target.declared.input is None:
        return
    if target.declared.input.time is not None:
        raise target.refused(None, "a table that is written has no WATERMARK; leave it out")
    wanted = {column.name: column.type for column in spark_schema(target.declared.input.schema)}
    given = {column.name: column.type for column in spark_schema(query.output_schema)}
    if list(wanted) != list(given):
        raise source.error(
            at, f"table {target.name!r} has the columns {', '.join(wanted)}, and the query gives {', '.join(given)}"
        )
    for name, kind in wanted.items():
        if given[name] != kind:
            raise source.error(
                at,
                f"table {target.name!r}, {name!r}: declared as {kind}, but the query gives {given[name]}: CAST it",
            )
