"""The formats on disk: JSON and arrays that are validated before use."""
