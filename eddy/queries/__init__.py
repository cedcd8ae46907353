"""Several queries over the same streams, which start, change and stop while rows arrive.

    engine.py    the public engine: streams, queries by name, pushes
    query.py     one query: its versions, its control elements, its results
    version.py   a version: the results that it owns, and when it has ended
    drain.py     a drain stop: when it is over
    changes.py   kinds of change
    family.py    one join for all versions over the same join graph
    sources.py   the streams: rows as arrivals in one order
    kept.py      the rows that a query can start on

A version owns results by the positions of their components. So versions share joins, and starting or stopping one
copies nothing.

Source: Sheykh Esmaili, Sanamrad, Fischer, Tatbul, "Changing flights in mid-air: a model for safely modifying
continuous queries", SIGMOD 2011: the control elements, the kinds of change and their guarantees. Positions of
components in place of operators that drain, the warm start and the handover are ours.
"""
