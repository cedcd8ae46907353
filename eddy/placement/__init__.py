"""Placement: which join step runs on which node.

Plans of one-way joins with a placement each and the node operator sets that execute them, after Tran and Lee; and plans
over many nodes, in one round or in several hops. Joins on Spark run them, and a simulation in `bench`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
