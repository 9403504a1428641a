"""A trained checkpoint becomes a bundle: graphs drawn from the weights, quantised, compared with PyTorch."""
