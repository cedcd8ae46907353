from .network import Faults
from .simulation import PlacementSimulation

__all__ = ["Faults", "PlacementSimulation"]
