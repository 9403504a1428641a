"""How a long program of tests ends: a table of figures, what did not hold, one JSON line, and an exit status."""

import json
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table


def verdict(title: str, figures: Mapping[str, Any], facts: Mapping[str, bool]) -> int:
    """Print everything.

    Args:
        facts: what would be wrong, and whether it is so.

    Returns:
        0 if everything held, else 1.
    """
    table = Table("figure", "seen", title=title)
    for name, value in figures.items():
        table.add_row(name.replace("_", " "), str(value))
    Console(width=120).print(table)
    wrong = [what for what, is_so in facts.items() if is_so]
    print("\n".join(f"NOT HELD: {what}" for what in wrong) or "all held")
    print(json.dumps({**figures, "not_held": wrong}))
    return 1 if wrong else 0
