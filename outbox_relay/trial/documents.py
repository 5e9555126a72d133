"""Reading and building documents the way a provider would: JSON and form bodies, places in them, marks in a text.

Pure. Written apart from the relay's renderer on purpose: two readings of one contract find each other's mistakes.
"""

from __future__ import annotations

import json
import re
from urllib.parse import parse_qsl

import jmespath

from outbox_relay.errors import ContractError
from outbox_relay.providers.parts import AnswerRule, Correlation
from outbox_relay.trial.memory import Document

EQUALS = re.compile(r"body\.([A-Za-z0-9_.]+)\s*==\s*'([^']*)'")
LISTED = re.compile(r"contains\(\[\s*'([^']*)'[^\]]*\],\s*body\.([A-Za-z0-9_.]+)\)")
FORM_STEP = re.compile(r"\[([^\]]*)\]")


def parse_body(body: bytes, form: str) -> Document:
    """The body as a document: empty when it has none or cannot be read. `form` is json, form or none."""
    if form == "form":
        document: Document = {}
        for name, value in parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True):
            place(document, [name.partition("[")[0], *FORM_STEP.findall(name)], value)
        return document
    try:
        parsed = json.loads(body)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def place(document: Document, steps: list[str], value: object) -> None:
    """Put a value into a document, making the members on the way."""
    for step in steps[:-1]:
        inner = document.setdefault(step, {})
        if not isinstance(inner, dict):
            return
        document = inner
    document[steps[-1]] = value


def pick(document: object, pointer: str) -> str | None:
    """The value at a JSON pointer as text; None when nothing stands there."""
    for step in pointer.strip("/").split("/"):
        if isinstance(document, dict):
            document = document.get(step)
        elif isinstance(document, list) and step.isdecimal() and int(step) < len(document):
            document = document[int(step)]
        else:
            return None
    return None if document is None else str(document)


def marked_key(document: Document, correlation: Correlation) -> str | None:
    """The key inside our mark, where the correlation says that the mark stands."""
    text = pick(document, correlation.pointer)
    if text is None:
        return None
    before, _, after = correlation.template.partition("{key}")
    # The last mark counts: a text may quote an older one.
    found = re.findall(re.escape(before) + r"([!-~]+?)" + re.escape(after) + "$", text)
    return found[-1] if found else None


def place_path(document: Document, path: str, value: object) -> bool:
    """Put a value where a simple expression (`body.a.b`) reads it. False for any other expression."""
    if not re.fullmatch(r"body(\.[A-Za-z_][A-Za-z0-9_]*)+", path):
        return False
    place(document, path.split(".")[1:], value)
    return True


def satisfy(rule: AnswerRule) -> tuple[int, Document]:
    """A status and a body that the rule recognises. Raises ContractError when its condition is beyond this."""
    document: Document = {"message": rule.reason or "refused"}
    if rule.when is None:
        return rule.statuses[0], document
    for path, value in EQUALS.findall(rule.when):
        place(document, path.split("."), value)
    for value, path in LISTED.findall(rule.when):
        place(document, path.split("."), value)
    answer = {"status": rule.statuses[0], "headers": {}, "body": document}
    if not jmespath.search(rule.when, answer):
        message = f"no answer is known here for which {rule.when!r} is true"
        raise ContractError(message, hint="give the fault a status and a body of its own")
    return rule.statuses[0], document
