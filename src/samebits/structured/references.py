"""Where a ``$ref`` leads: JSON pointers within one schema document."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from samebits.errors import InputError

_MOST_HOPS = 32  # references to references that are followed to look at a schema


def refuse(keyword: str, path: str, why: str, remedy: str) -> InputError:
    """The error for a keyword at a place of the schema."""
    return InputError(f"{keyword} at {path} {why}", field="json_schema", remedy=remedy)


class References:
    """The references of a document.

    Attributes:
        document: the schema as a whole.
    """

    def __init__(self, document: Any) -> None:
        self.document = document
        base = document.get("$id") or document.get("id") if isinstance(document, dict) else None
        self._base = base.rstrip("#") if isinstance(base, str) else None

    def pointer(self, reference: str, path: str) -> str:
        """The reference as a pointer of the form ``#`` or ``#/…``.

        Raises:
            InputError: it leads out of the document, or names an anchor.
        """
        if self._base and reference.startswith(self._base + "#"):
            reference = reference[len(self._base) :]
        if reference == "#" or reference.startswith("#/"):
            return reference
        raise refuse("$ref", path, f"is {reference!r:.80}", "Use pointers into the same schema, such as #/$defs/name.")

    def target(self, pointer: str, path: str) -> Any:
        """What stands at a pointer.

        Raises:
            InputError: nothing does, or it belongs to a part with an identifier of its own.
        """
        found = self.document
        for part in pointer[2:].split("/") if len(pointer) > 1 else ():
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isascii() and name.isdigit() and int(name) < len(found):
                found = found[int(name)]
            else:
                raise refuse("$ref", path, f"is {pointer!r:.80}, which leads nowhere", "Define it under $defs.")
            if isinstance(found, dict) and isinstance(found.get("$id"), str):
                raise refuse("$ref", path, "leads into a part with an $id of its own", "Remove that $id.")
        return found

    def look_through(self, schema: Any, path: str) -> Any:
        """The schema behind a reference that stands alone, else the schema itself."""
        for _ in range(_MOST_HOPS):
            if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
                break
            schema = self.target(self.pointer(schema["$ref"], path), path)
        return schema
