"""Placement: which join step runs on which node, decided while the join runs.

Plans of one-way joins with a placement each, node operator sets that execute them, and their change while tuples are
under way, after Tran and Lee; and plans over many nodes, in one round or in several hops. `Simulation` runs all of it
in one process, with real joins and a simulated clock.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
