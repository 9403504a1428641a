"""HTTP beside gRPC: pages for machines, and dialects of other translation services."""

# Methods of calls that models work for, as labels; here, because the core knows them before it loads the dialects.
METHODS = ("libretranslate/translate", "libretranslate/translate_file", "deepl/translate")
