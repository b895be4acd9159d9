"""A real Kubernetes on one small Linux machine, for the demo and the tests."""
