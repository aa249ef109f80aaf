"""Errors with a message for the user: one sentence that says what to do. The command line shows no traceback."""


class InputError(ValueError):
    """Wrong input. The message is one sentence that says what is wrong and what to do about it."""


class TrainingError(RuntimeError):
    """Training cannot continue (the loss is not finite, memory runs out). The message says what to change."""
