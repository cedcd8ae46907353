"""Nodes, links and clocks that are simulated, with real engines and joins: what the papers on distribution measure."""
