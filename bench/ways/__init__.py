"""Ways to do a join that are measured in turns: a Runtime, the engine without Arrow, a strategy, hand-written loops."""
