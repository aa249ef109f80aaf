"""Errors with a message for the user: one sentence that says what to do. The command line shows no traceback."""

from collections.abc import Iterator
from contextlib import contextmanager

from npdraw.words import cut


class InputError(ValueError):
    """Wrong input. The message is one sentence that says what is wrong and what to do about it. `cut` shortens it
    if it repeats a long value or path."""

    def __init__(self, sentence: str):
        super().__init__(cut(sentence))


class TrainingError(RuntimeError):
    """Training cannot continue (the loss is not finite, memory runs out). The message says what to change."""


@contextmanager
def about(what: object) -> Iterator[None]:
    """Begin the sentence of an `InputError` with the file or setting that it is about, unless it names that already."""
    try:
        yield
    except InputError as error:
        said = str(error)
        raise InputError(said if str(what) in said else f"{what}: {said}") from None
