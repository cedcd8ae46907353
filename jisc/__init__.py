"""Plans: join trees over streams, the routes of tuples under them, and strategies for replacing one plan by another.

The package lies between the state modules (`stairs`), which know nothing of plans, and the runtime (`eddy`), which runs
a plan under a strategy (`jisc.strategies`) and passes its tables of routes to the kernel.
"""
