"""Surfaces: translation between the wire and the pipeline."""
