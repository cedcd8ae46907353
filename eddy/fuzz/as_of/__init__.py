"""Cases of as-of joins: each row gets the version of a table at an event time of the row, or when it arrives."""
