"""Seeded arrivals and the queries over them.

sources   endless arrivals over windows of fixed size: W1, W2, W21 and others
turnover  arrivals that repeat, each time replacing every row of all windows
shapes    arrivals whose distribution changes from phase to phase; families.py lists them
"""
