"""What a configuration may name as a check."""


def is_shouted(text: str) -> str | None:
    """Nothing where the text has no small letters."""
    return None if text == text.upper() else "has small letters"


def raises(text: str) -> None:
    """Says what is wrong by an exception."""
    if "b" in text:
        raise ValueError("holds a b")


NOT_A_FUNCTION = 3
