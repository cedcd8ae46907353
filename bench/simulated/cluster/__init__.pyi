from .balancing import Automatic, Balance
from .fitting import fitted
from .links import Link
from .machine import Node
from .moves import Variants
from .simulation import Simulation
from .work import Costs

__all__ = ["Automatic", "Balance", "Costs", "Link", "Node", "Simulation", "Variants", "fitted"]
