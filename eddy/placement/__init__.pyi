from .costs import Model, StreamStatistics, UnitCosts
from .network import Faults
from .operators import node_operator_sets
from .plan import JEP, SEP, jep
from .simulation import Simulation

__all__ = [
    "JEP",
    "SEP",
    "Faults",
    "Model",
    "Simulation",
    "StreamStatistics",
    "UnitCosts",
    "jep",
    "node_operator_sets",
]
