from .balancing import Automatic, Balance
from .fitting import fitted
from .links import Link
from .machine import Node
from .moves import Variants
from .simulation import ClusterSimulation
from .work import Costs

__all__ = ["Automatic", "Balance", "ClusterSimulation", "Costs", "Link", "Node", "Variants", "fitted"]
