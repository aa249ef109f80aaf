"""How messages are worded, wherever they are made."""


def many(count: int, noun: str) -> str:
    """A count of things, in words."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
