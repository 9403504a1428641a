"""JSON and ARB: string values; in ARB, what begins with "@" describes messages and stays."""

import json
import re
from functools import partial

from service.documents.draft import Draft, Slot
from service.documents.messages import Message, draft_of_messages, is_language

_TOKEN = re.compile(r'(?P<string>"(?:[^"\\]|\\.)*+")(?P<key>\s*+:)?+|[{}\[\]]')


def read(text: str, target_language: str = "", *, is_arb: bool = False) -> Draft:
    """Return the draft of a JSON file; raises ValueError."""
    try:
        root = json.loads(text)
    except RecursionError:
        raise ValueError("the file is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"the file is no JSON: {error}") from None
    is_escaped = text.isascii() and "\\u" in text
    messages: list[Message] = []
    fixed: list[Slot] = []
    keys: list[str] = []  # of the objects around the present place; an array has ""
    key = ""  # the last one
    for token in _TOKEN.finditer(text):
        if token["string"] is None:
            if token[0] in "{[":
                keys.append(key)
                key = ""
            else:
                key = keys.pop()
            continue
        place, said = token.span("string"), json.loads(token["string"])
        if token["key"]:
            key = said
            is_root = len(keys) == 1 and len(root) == 1 and isinstance(root[key], dict)
            if target_language and is_root and is_language(key):
                fixed.append(Slot(*place, json.dumps(target_language)))
        elif is_arb and key == "@@locale" and target_language:
            fixed.append(Slot(*place, json.dumps(target_language.replace("-", "_"))))
        elif not (is_arb and any(one.startswith("@") for one in (*keys, key))):
            messages.append(Message(*place, said, partial(json.dumps, ensure_ascii=is_escaped)))
    return draft_of_messages(text, messages, fixed)
