"""JSON and ARB: string values; in ARB, what begins with "@" describes messages and stays."""

import json
import re

from service.documents.draft import Draft, Slot
from service.documents.messages import Message, draft_of_messages, is_language

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|[{}\[\]:,]|[^\s{}\[\]:,"]++')


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
    tokens = list(_TOKEN.finditer(text))
    for number, token in enumerate(tokens):
        written = token[0]
        if written in "{[":
            keys.append(key)
            key = ""
        elif written in "}]":
            keys.pop()
        elif written.startswith('"'):
            said = json.loads(written)
            if number + 1 < len(tokens) and tokens[number + 1][0] == ":":
                key = said
                if (
                    target_language
                    and len(keys) == 1
                    and len(root) == 1
                    and is_language(key)
                    and isinstance(root[key], dict)
                ):
                    fixed.append(Slot(*token.span(), json.dumps(target_language)))
            elif is_arb and key == "@@locale" and target_language:
                fixed.append(Slot(*token.span(), json.dumps(target_language.replace("-", "_"))))
            elif not (is_arb and any(one.startswith("@") for one in (*keys, key))):
                messages.append(Message(*token.span(), said, lambda new: json.dumps(new, ensure_ascii=is_escaped)))
    return draft_of_messages(text, messages, fixed)
