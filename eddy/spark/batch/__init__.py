"""A join of batch DataFrames: rows become blobs, Spark shuffles the blobs, each partition joins its own."""
