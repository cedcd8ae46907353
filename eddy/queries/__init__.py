"""Several queries over the same streams, which start, change and stop while rows arrive.

    engine.py    the public engine: streams, queries by name, pushes
    query.py     one query of an engine: its control elements, its results
    lineage.py   the versions of a query, and what control elements make of them
    version.py   a version: which results it owns, and when it has ended
    drain.py     a drain stop: when it is over
    reader.py    takes the results that a version owns from those that its family found
    changes.py   kinds of change
    alone.py     which versions have a join of their own: branches, tables, changelogs and others
    lone_join.py the join of one version alone
    handover.py  the difference between the answers of two changelogs
    family.py    one join for all versions over the same join graph
    sharing.py   which families over different join graphs share SteMs
    stem_pool.py, shared_join.py   these SteMs, and a join over them
    combinations.py  what the join of a family found, and what each version gets of it
    grouped_filters.py, kernels.py   the ranges of all versions, asked at once
    sources.py   the streams and tables: rows and changes as arrivals in one order
    kept.py      the rows that a query can start on
    bound.py     the bound on bytes, which all joins share
    snapshot.py, restoring.py   an engine as bytes, and back

A version owns results by the positions of their components. So versions share joins, and starting or stopping one
copies nothing.

Source: Sheykh Esmaili, Sanamrad, Fischer, Tatbul, "Changing flights in mid-air: a model for safely modifying
continuous queries", SIGMOD 2011: the control elements, the kinds of change and their guarantees. Positions of
components in place of operators that drain, the warm start and the handover are ours.
"""
