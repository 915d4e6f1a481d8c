"""The tables of docs/config.md, made of the code: ``python -m tests.repo.config_tables`` writes them anew."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any, Final

from samebits.api.config import ModelConfig, ServerConfig
from samebits.gateway.policy import Policy
from samebits.gateway.settings import CacheConfig, LedgerConfig, TenantConfig, UpstreamConfig

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "config.md"
SECTIONS: Final[dict[str, Any]] = {
    "Server": ServerConfig,
    "Embedded models": ModelConfig,
    "Upstreams": UpstreamConfig,
    "Policies": Policy,
    "Tenants": TenantConfig,
    "Cache": CacheConfig,
    "Ledger": LedgerConfig,
}
HEAD: Final = "| key | default | meaning |\n|---|---|---|\n"


def rendered(text: str) -> str:
    """The document with the table of each section as the code has it; the text around them stays."""
    for title, kind in SECTIONS.items():
        pattern = re.compile(
            rf"(^## {title}\n(?:(?!^## ).)*?{re.escape(HEAD)})(?:\|[^\n]*\n)*", re.MULTILINE | re.DOTALL
        )
        table = "".join(_row(key) for key in dataclasses.fields(kind) if "meaning" in key.metadata)
        text, found = pattern.subn(lambda match, table=table: match.group(1) + table, text)  # type: ignore[misc]
        assert found == 1, f"docs/config.md has no section {title} with a table"
    return text


def _row(key: dataclasses.Field[Any]) -> str:
    default = key.default
    if default is None or default in ((), ""):
        shown = ""
    else:
        shown = f"`{str(default).lower() if isinstance(default, bool) else default}`"
    return f"| `{key.name}` | {shown} | {key.metadata['meaning']} |\n"


if __name__ == "__main__":
    DOCUMENT.write_text(rendered(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
