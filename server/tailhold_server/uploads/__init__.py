"""Documents that clients hand over, on a volume that pods share."""
