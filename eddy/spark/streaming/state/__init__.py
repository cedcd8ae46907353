"""The checkpoint on disk: manifests, segments of the log, identity, and files that are whole or absent."""
