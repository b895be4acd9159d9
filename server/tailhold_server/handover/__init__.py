"""Requests that a pod of the stable side passes on to a candidate."""
