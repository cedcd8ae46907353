"""Other engines on the same work: what each makes of W1, and how fast.

One file a peer; `works.py` is the work, `turns.py` how peers in this process take it, `environment.py` where those live
that do not fit into this process, `figures.py` what is measured and told.
"""
