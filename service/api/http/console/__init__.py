"""The page at `/`: a text is translated while somebody writes it, and the page shows how."""
