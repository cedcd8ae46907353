"""State modules: the live windows of a join (SteMs), caches of partial joins (STAIRs) and the kernels over them.

This is the lowest package. It knows streams, windows, attribute classes and tables of hops, but no queries, plans or
routing policies. Everything that a kernel reads or writes lies in a few flat arrays (`stairs.memory.arena`), so the
numbers of streams, classes and states are data, and no kernel is recompiled when one of them changes.
"""
