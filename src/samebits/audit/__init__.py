"""Measurements of (non)determinism."""
