"""The report as Markdown, for a comment or the summary of a CI job."""

from __future__ import annotations

from samebits.audit.report.document import Document
from samebits.audit.report.sections import contents
from samebits.audit.report.templates import markdown_environment


def to_markdown(document: Document) -> str:
    """The report without its plots. Equal documents give equal texts."""
    return markdown_environment().get_template("report.md.j2").render(vars(contents(document)))
