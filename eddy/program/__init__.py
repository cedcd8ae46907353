"""A streaming job in one file: tables with their connectors, and INSERT statements between them (`eddy run`)."""
