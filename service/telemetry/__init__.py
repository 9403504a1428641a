"""What the server says about itself: logs and numbers."""
