from .links import Link
from .machine import Node
from .simulation import Simulation
from .work import Costs, Work

__all__ = ["Costs", "Link", "Node", "Simulation", "Work"]
