"""All compiled loops over the state, and the decorators that compile them. Kernels hold no state of their own."""
