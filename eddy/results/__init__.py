"""What leaves a runtime: tables of results, and late rows."""
