"""Placement: which join step runs on which node.

The room holds two kinds of plan: plans of one-way joins with a placement each, with the node operator sets that execute
these plans, after Tran and Lee; and plans over many nodes, in one round or in several hops. Joins on Spark and a
simulation in `bench` run the plans.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
