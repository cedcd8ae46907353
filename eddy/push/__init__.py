"""What makes a push happen in whole or not at all: one call at a time, the way back, the bound on bytes."""
