"""The stand-in engine of a pod whose manifest asks for one: no model, and latencies as they are told."""
