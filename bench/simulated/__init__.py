"""Simulated nodes, links and clocks with real engines and joins, for the measurements of the papers on distribution."""
