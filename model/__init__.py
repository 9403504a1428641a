"""What a translation model is and how it learns.  `config`, `tokenizer` and `bundle` need no torch; the rest does."""
