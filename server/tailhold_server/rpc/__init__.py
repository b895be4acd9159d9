"""The same service over gRPC."""
