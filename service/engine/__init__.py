"""Token ids in, token ids out: the search, its batch, its caches, and the process they live in."""
