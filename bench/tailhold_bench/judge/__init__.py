"""The judge against simulated requests: how often it is wrong, and how many requests it takes."""
