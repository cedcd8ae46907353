"""From pushed batches to arrivals in the state: validation, order, keys as words, watermarks."""
