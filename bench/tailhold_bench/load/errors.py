"""What a user of the load generator can mend."""


class LoadError(Exception):
    """The message names what is wrong, what is allowed and the next step."""
