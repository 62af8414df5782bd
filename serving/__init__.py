"""The gateway: serves an exported SavedModel over HTTP at /rank. It shares only files with the trainer."""
