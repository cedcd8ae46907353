"""The first rows of each group of results, an operator of the pipeline."""
