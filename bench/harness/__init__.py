"""The harness of all figures: measuring points in turns, keeping them, drawing, tabulating, writing the report."""
