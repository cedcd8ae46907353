"""What a runtime reports: the plan with live figures, reasons, counters, statistics."""
