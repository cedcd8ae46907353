"""The n-way join as an operator: SteMs, stored states, a plan that changes while it runs, a bound on its bytes."""
