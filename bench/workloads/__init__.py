"""Seeded arrivals and the queries over them.

sources   arrivals over windows of fixed size: W1, W2, W21 and others, endless, or repeating a turnover of the windows
shapes    arrivals whose distribution changes from phase to phase; families.py lists them
"""
