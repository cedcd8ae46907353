"""Names of types, as CAST takes them."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from eddy.expressions.grammar import printed
from eddy.expressions.source import StatementText

_TYPES = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "VARCHAR": pa.string(),
    "CHAR": pa.string(),
    "TEXT": pa.string(),
    "DATE": pa.date32(),
}
_STAMPS = {"TIMESTAMP": None, "DATETIME": None, "TIMESTAMPNTZ": None, "TIMESTAMPTZ": "UTC", "TIMESTAMPLTZ": "UTC"}


def type_of(node: exp.Expression, source: StatementText) -> pa.DataType:
    """Return the Arrow type of a type's name. Raises SqlError for types that CAST lacks."""
    name = node.this.name if isinstance(node, exp.DataType) and hasattr(node.this, "name") else ""
    sizes = [int(parameter.name) for parameter in node.expressions if str(parameter.name).isdigit()]
    if len(sizes) < len(node.expressions) or len(sizes) > (2 if name == "DECIMAL" else 1):
        name = ""
    if name in ("VARCHAR", "CHAR", "TEXT") and not sizes and name != "CHAR":
        return pa.string()
    if name in _TYPES and not sizes:
        return _TYPES[name]
    if name in _STAMPS and sum(sizes) <= 9:
        unit = ("s", "ms", "us", "ns")[-(-sizes[0] // 3)] if sizes else "us"
        return pa.timestamp(unit, _STAMPS[name])
    if name == "DECIMAL":
        precision, scale = [*sizes, *([38, 0][len(sizes) :])] if sizes else (10, 0)
        if 1 <= precision <= 38 and 0 <= scale <= precision:
            return pa.decimal128(precision, scale)
    raise source.error(
        node,
        f"there is no type {printed(node)} here; there are BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE,"
        " DECIMAL(p, s), STRING, DATE and TIMESTAMP(n)",
    )
