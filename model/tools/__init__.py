"""Commands that are run once in a while: averages, more data, shortlists, pictures of attention."""
