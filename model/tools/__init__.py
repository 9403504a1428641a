"""Commands that are run once in a while: averages, more data, shortlists, ablations, pictures of attention."""
