"""Plans in motion: join trees over streams, the routes that tuples take under them, and how one plan follows another.

Between the state modules (`stairs`), which know nothing of plans, and the runtime (`eddy`), which runs plans under a
strategy (`jisc.strategies`) and hands the routes to the kernel as tables.
"""
