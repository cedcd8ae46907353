"""Pushes: how one happens in whole or not at all, one call at a time, within a bound on bytes."""
