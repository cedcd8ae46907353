"""Cases of engines whose queries start, change and stop.

case.py     a case as plain data: streams, queries, steps
oracle.py   the reference: which results each query gives, by the definition
measures.py loss, disorder and duplicates of a change
draw.py     cases drawn with Hypothesis
play.py     an engine and the reference taken through the same steps
script.py   a case as a Python script
"""
