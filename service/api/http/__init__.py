"""HTTP beside gRPC: pages for machines, dialects of other translation services, and the console."""

# Methods of calls that models work for, as labels; here, since they are known before the dialects are loaded.
METHODS = (
    *("libretranslate/translate", "libretranslate/translate_file", "deepl/translate", "deepl/document_work"),
    *("console/translate", "console/document", "console/alternatives", "console/score"),
)
