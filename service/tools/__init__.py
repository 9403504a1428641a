"""Tools that are no server: files of any length translated, servers loaded."""
