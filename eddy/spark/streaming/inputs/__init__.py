"""What is new in all streams of a join, files and messages, as one source of Spark that yields only positions."""
