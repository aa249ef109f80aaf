"""The one error a user can cause: a sentence that says what to do, never a traceback on the command line."""


class InputError(ValueError):
    """Wrong input. The message is one sentence that says what is wrong and what to do about it."""


class TrainingError(RuntimeError):
    """Training cannot go on (a loss that is not finite, memory that is not there); the sentence says what to change."""
