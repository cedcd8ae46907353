"""The live page of a runtime or an engine in this process: what it shows, and when it may ask."""
