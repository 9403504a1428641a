"""Text that came from outside, made harmless for a line of a log or a label."""


def printable(text: str, *, max_characters: int | None = None) -> str:
    r"""`text` without anything that moves a cursor, turns a line around or ends it; cut after `max_characters`.

    Control characters, line ends and invisible formatting characters become escapes like `\x1b`.
    """
    if max_characters is not None and len(text) > max_characters:
        text = f"{text[: max_characters - 3]}..."
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
