"""Figures 9 to 16 of the plan migration paper: how long a migration stage lasts, and what comes out in it."""
