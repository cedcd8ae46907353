"""Reports of a runtime: the plan with live figures, reasons, counters, history, statistics."""
