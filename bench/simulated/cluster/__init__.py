"""Load balancing by moves of partition groups between engines, each with its own plans.

A query runs partitioned by key on several nodes; partition groups move between the nodes by the protocols of Zhu and
Rundensteiner ("parallel" is PTLB, "state" is MSLB) or just in time ("jit"). `ClusterSimulation` runs the nodes in one
process, with real engines and a simulated clock.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
