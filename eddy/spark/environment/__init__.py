"""The environment that Spark needs: a Java, a session, Python workers that can import this package."""
