"""Errors with a message for the user: one sentence that says what to do. The command line shows no traceback."""

from npdraw.words import cut


class InputError(ValueError):
    """Wrong input. The message is one sentence that says what is wrong and what to do about it. `cut` shortens it
    if it repeats a long value or path."""

    def __init__(self, sentence: str):
        super().__init__(cut(sentence))


class TrainingError(RuntimeError):
    """Training cannot continue (the loss is not finite, memory runs out). The message says what to change."""
