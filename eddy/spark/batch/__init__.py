"""A join of batch DataFrames: rows become blobs, Spark shuffles the blobs, and each partition joins its blobs."""
