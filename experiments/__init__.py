"""The papers' tables and figures, each one command: its cells are computed once and kept, then reported."""
