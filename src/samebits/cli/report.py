"""``samebits report``: the result of an audit as HTML, Markdown or JUnit XML, again."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from samebits.errors import InputError


@dataclass(frozen=True)
class Outputs:
    """The files that a result goes to; None where it is not wanted. The fields are named as the options."""

    json: str | None = None
    html: str | None = None
    markdown: str | None = None
    junit: str | None = None

    def check(self, **inputs: str | None) -> None:
        """Whether all of them can be written: before an audit of hours, not after it.

        Args:
            inputs: files that are not to be overwritten, by what they are.

        Raises:
            InputError: a folder does not exist, a file cannot be written, two are the same file, one is an input, or
                the package that draws plots is missing.
        """
        named = {Path(value).resolve(): name for name, value in inputs.items() if value is not None}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None:
                continue
            path = Path(value).resolve()
            if not path.parent.is_dir():
                raise InputError(
                    "its folder does not exist", field=field.name, remedy="Create it, or name another file."
                )
            if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
                raise InputError("cannot be written", field=field.name, remedy="Name another file.")
            if path in named:
                raise InputError(
                    f"is the file of {named[path]}, too", field=field.name, remedy="Give each a file of its own."
                )
            named[path] = field.name
        if self.html is not None:
            from samebits.audit.report.draw import check_drawing

            check_drawing()

    def write(self, result: Mapping[str, Any]) -> None:
        """Writes the files from a result document, of JSON's types."""
        from samebits.audit.report.document import parse_document
        from samebits.audit.report.junit import to_junit
        from samebits.audit.report.markdown import to_markdown
        from samebits.audit.report.page import to_html

        text = json.dumps(result, indent=2)
        if self.json is not None:
            Path(self.json).write_text(text + "\n", "utf-8")
        # Through the text, so that a report made now and one made from the file later cannot differ.
        document = parse_document(json.loads(text))
        for name, render in ((self.html, to_html), (self.markdown, to_markdown), (self.junit, to_junit)):
            if name is not None:
                Path(name).write_text(render(document), "utf-8")


def report(
    result: Annotated[str, typer.Argument(help="The file that `samebits audit --json` wrote.")],
    html: Annotated[
        str | None, typer.Option(help="Write a page that stands alone to this file.", show_default=False)
    ] = None,
    markdown: Annotated[str | None, typer.Option(help="Write Markdown to this file.", show_default=False)] = None,
    junit: Annotated[str | None, typer.Option(help="Write JUnit XML to this file.", show_default=False)] = None,
) -> None:
    """Write the report of an audit from its result. Nothing is measured or sent."""
    from samebits.audit.report.document import read_result

    outputs = Outputs(html=html, markdown=markdown, junit=junit)
    if outputs == Outputs():
        raise InputError("no file was named", field="html", remedy="Give --html, --markdown or --junit.")
    outputs.check(result=result)
    outputs.write(read_result(Path(result)))
