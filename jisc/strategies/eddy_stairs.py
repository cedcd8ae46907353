"""STAIRs under an eddy: each tuple in flight returns to the eddy, which chooses the next SteM or STAIR at every hop.

Each join of the plan has two modules, the duals: a SteM where the join has a stream, a STAIR where it has a join below
it. A tuple over the streams of one side is inserted into its own module and probes the dual; what it finds returns to
the eddy as a tuple over both sides. There is no compiled route: the eddy keeps done and ready bits for each tuple and
sends it to the module of lowest rank (`stairs.kernels.cacq`). The policy ranks: the modules are those of its plan, and
another plan is another ranking with other STAIRs.

The states are those of the pipelined plan, so keys are promoted and demoted as there, and this is all in which the
two strategies differ:

    eddy-stairs   eager, as STAIRs were published. A transition demotes each key of a STAIR that the new ranking does
                  not have, and promotes each key of a new one, while output waits
    eddy-jisc     lazy, as the JISC paper applies JISC to STAIRs (sec. 4.6). A transition discards such a STAIR. The
                  first tuple that probes a new one with a key promotes this key

Hence the names: "eddy-" before the strategy with compiled routes that treats its states alike. In the paper, a tuple
that probes an incomplete STAIR is routed to the STAIRs below it, "equivalent to the Promote operation" of its key. Here
that promotion is one step: the combinations are found and inserted before the tuple probes the STAIR.
Source: Deshpande, Hellerstein, "Lifting the burden of history from adaptive query processing", VLDB 2004; Aly, Aref,
Ouzzani, Mahmoud, "JISC", EDBT 2014, secs. 3.2 and 4.6.
"""

from __future__ import annotations

from jisc.plan.rankings import compile_stair_rankings
from jisc.plan.tree import Tree
from jisc.strategies.jisc import Jisc
from jisc.strategies.stairs import Stairs
from jisc.strategies.stored import StoredStrategy
from stairs.descriptors import ROUTED


class RoutedStrategy(StoredStrategy):
    """A strategy that stores every inner state, and whose tuples an eddy routes hop by hop."""

    mode = ROUTED
    compile = staticmethod(compile_stair_rankings)

    def _start(self, tree: Tree) -> None:
        self.modules.scratch.open_frames()
        super()._start(tree)


class EddyStairs(RoutedStrategy, Stairs):
    """The eager form of STAIRs under an eddy: a transition promotes all keys, one by one."""

    name = "eddy-stairs"


class EddyJisc(RoutedStrategy, Jisc):
    """The lazy form of STAIRs under an eddy: keys are promoted on their first probe, and in the background."""

    name = "eddy-jisc"
