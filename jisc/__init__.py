"""Plans: join trees over streams, and the routes that tuples take under them.

Between the state modules (`stairs`), which know nothing of plans, and the runtime (`eddy`), which has one plan at a
time and hands its routes to the kernel as tables.
"""
