"""Has half of schemathesis' requests ask for a language that there is, so that they come further than its check."""

import schemathesis


@schemathesis.hook
def map_body(context: object, body: object) -> object:
    if isinstance(body, dict):
        for name in ("target", "target_lang"):
            if len(str(body.get(name, ""))) % 2:
                body[name] = "de"
    return body
