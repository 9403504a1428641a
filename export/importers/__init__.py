"""Foreign models become bundles: one module for each format, and the command line for all of them."""
