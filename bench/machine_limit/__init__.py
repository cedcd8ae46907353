"""What the machine could do at best, and where the time of a push goes."""
