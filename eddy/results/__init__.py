"""Output: the results of a push, and the late rows."""
