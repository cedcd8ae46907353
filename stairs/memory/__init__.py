"""The arrays of one engine: the arena that lasts, the scratch room of a push, and the bound on both."""
