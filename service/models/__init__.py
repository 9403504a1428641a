"""What the server translates with: descriptions, texts to ids, which model a request means."""
