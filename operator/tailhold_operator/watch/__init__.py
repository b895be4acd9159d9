"""Watches what pipelines promise: reads the counters of their pods every few seconds, beside the passes."""
