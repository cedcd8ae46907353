"""Cases of queries over tables: inputs whose rows are replaced and deleted."""
