"""The gateway: an exported SavedModel, answered over HTTP at /rank. It meets the trainer only in files."""
