"""The arrays of one engine: the arena, the scratch memory of a push, and the bound on the bytes of the state."""
