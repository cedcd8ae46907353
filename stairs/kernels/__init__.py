"""All compiled loops over the state, and the decorators that compile them. Kernels have no state of their own."""
