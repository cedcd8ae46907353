"""Displays of what runs: a description of plans with their figures, as text, JSON, DOT, SVG, HTML and a live page."""
