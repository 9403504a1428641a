"""Numbers of a recipe that have to lie in a range.  The message says where, what was given and what is needed."""


def require_at_least(table: str, smallest: float, **values: float) -> None:
    """Refuse a value below `smallest`.

    Raises:
        ValueError: naming the first such value as TABLE.NAME.
    """
    for name, value in values.items():
        if not value >= smallest:  # NaN too
            raise ValueError(f"{table}.{name} is {value}, at least {smallest} is needed")


def require_above_zero(table: str, **values: float) -> None:
    """Refuse zero and less.

    Raises:
        ValueError: as above.
    """
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{table}.{name} is {value}, it must be above 0")


def require_share(table: str, *, below: float | None = None, **values: float) -> None:
    """Refuse what is not from 0 to 1, or from 0 to less than `below`.

    Raises:
        ValueError: as above.
    """
    for name, value in values.items():
        if not 0 <= value <= 1 or (below is not None and value >= below):
            upper = "at most 1" if below is None else f"below {below}"
            raise ValueError(f"{table}.{name} is {value}, it must be at least 0 and {upper}")
