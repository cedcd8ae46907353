"""Joins placed on nodes, with real joins and a simulated clock in one process.

`PlacementSimulation` runs the plans of `eddy.placement` and changes them while tuples are in transit, after Tran and
Lee.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
