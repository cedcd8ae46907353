from .network import Faults
from .simulation import Simulation

__all__ = ["Faults", "Simulation"]
