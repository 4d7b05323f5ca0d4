"""The one exception that a user is meant to read."""


class BadInput(ValueError):
    """Input that cannot be used.

    The message is one sentence: which file, which row, what was expected and what to do. The job wrapper
    prints that sentence alone, without a traceback, and exits with status 1.
    """
