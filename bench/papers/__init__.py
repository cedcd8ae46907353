"""The figures of the papers, measured here."""
