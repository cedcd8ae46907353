"""State modules: the live windows of a join (SteMs), caches of partial joins (STAIRs) and the kernels over them.

The lowest package of the house: it knows nothing of queries, plans or routing policies, only of streams, windows,
attribute classes and tables of hops. Everything a kernel reads or writes lies in a few flat arrays
(`stairs.memory.arena`), so the number of streams, classes and states is data and nothing is compiled again when one of
them changes.
"""
