"""Rows of the route tables: their fields are in the order of the columns that kernels read."""

from __future__ import annotations

from stairs import descriptors
from stairs.graph import JoinGraph, Window, WindowKind
from stairs.routes import CompareRow, HopRow, OpRow, no_routes, op_row, route_tables, stem_hop


def test_fields_stand_in_the_order_of_the_columns() -> None:
    names = {"by": "class"}
    for row, prefix in ((HopRow, "H"), (OpRow, "O"), (CompareRow, "X")):
        columns = [getattr(descriptors, f"{prefix}_{names.get(name, name).upper()}") for name in row._fields]
        assert columns == list(range(getattr(descriptors, f"{prefix}_FIELDS")))


def test_rows_name_the_places_of_a_class() -> None:
    graph = JoinGraph(("R", "S", "T"), (Window(WindowKind.UNBOUNDED),) * 3, ((1,), (0, 1), (0,)), (1, 1))
    hop = stem_hop(graph, 1, 1, 2, 3)
    assert hop == HopRow(target=1, by=1, column=1, offset=2, ops0=2, ops1=3)
    assert (hop.state, hop.store) == (-1, -1)
    assert op_row(graph, 1, 0, True) == OpRow(by=0, offset=0, check=1, stream=1, column=0)
    tables = route_tables([(0, 1, 1, 1)], [hop], [op_row(graph, 0, 1, False)])
    assert tables.hops.tolist() == [list(hop)]
    assert tables.ops.tolist() == [[1, 0, 0, 0, 0]]
    assert tables.counts.tolist() == [[0]] * descriptors.V_FIELDS
    assert [table.size for table in no_routes()] == [0] * 6
