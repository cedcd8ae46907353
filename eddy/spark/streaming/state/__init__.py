"""The state of a streaming join on disk: log, manifests, identity; their recovery, retention and compaction."""
