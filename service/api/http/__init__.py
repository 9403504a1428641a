"""The HTTP ports: the protocols of LibreTranslate and DeepL, the console, and pages such as `/metrics` and `/docs`.

`server.py` puts them together; `handlers.py` gives a request what every call has.
"""

# Labels of the calls that models work for; here, because they are needed before the dialects are loaded.
METHODS = (
    *("libretranslate/translate", "libretranslate/translate_file", "deepl/translate", "deepl/document_work"),
    *("console/translate", "console/document", "console/alternatives", "console/score"),
)
