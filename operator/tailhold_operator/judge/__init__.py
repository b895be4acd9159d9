"""Whether a revision keeps its promise: evidence from counts of requests, and a verdict that says why."""
