"""The join of batch DataFrames: two transports, and the engine of one partition."""
