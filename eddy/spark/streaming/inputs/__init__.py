"""New files and messages of all streams of a join, as one source of Spark that yields only positions."""
