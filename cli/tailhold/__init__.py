"""The one command for people, also installed as a kubectl plugin."""

__version__ = "0.1.0"
