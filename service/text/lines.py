"""What one line of a UTF-8 file says; only line feeds, with or without a carriage return, end a line."""

_BOM = "\ufeff"


def text_of_line(raw: bytes, *, is_first: bool) -> str:
    """The text of a line, without its end and, in a file's first one, without a byte order mark.

    Raises:
        UnicodeDecodeError: it is no UTF-8.
    """
    text = without_end(raw.decode("utf-8"))
    return text.removeprefix(_BOM) if is_first else text


def without_end(line: str) -> str:
    """The line without the line feed, or carriage return and line feed, that ends it."""
    return line.removesuffix("\n").removesuffix("\r")


def on_one_line(text: str) -> str:
    """The text with a space for whatever any program takes for the end of a line."""
    return " ".join(text.splitlines())
