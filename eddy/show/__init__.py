"""What runs, shown: a description of plans with their figures, and text, JSON, DOT, SVG, HTML and a live page of it."""
