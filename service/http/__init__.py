"""The HTTP edge: operational endpoints, and the dialects that come later."""
