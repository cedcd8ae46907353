from .costs import Model, StreamStatistics, UnitCosts
from .operators import node_operator_sets
from .plan import JEP, SEP, jep

__all__ = [
    "JEP",
    "SEP",
    "Model",
    "StreamStatistics",
    "UnitCosts",
    "jep",
    "node_operator_sets",
]
