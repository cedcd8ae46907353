"""The router: it samples recent tuples, asks a policy for a plan, and schedules transitions."""
