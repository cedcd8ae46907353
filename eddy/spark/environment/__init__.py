"""What Spark needs around the engine: a Java, a session, Python workers that can import this package."""
