"""The live page of a runtime or an engine in this process: its figures and the moments of reading."""
