"""From what a user named to something that can be asked. What a kind of target needs is imported only for it."""

from __future__ import annotations

from samebits.audit.targets.spec import HttpSpec, ModelSpec, TargetSpec
from samebits.audit.targets.target import Target


def open_target(spec: TargetSpec, *, timeout: float = 120.0) -> Target:
    """A target that is yet to be opened.

    Args:
        timeout: seconds after which an answer of a server is given up.

    Raises:
        InputError: a key cannot be read, or a package is missing.
    """
    if isinstance(spec, HttpSpec):
        from samebits.audit.targets.http import HttpTarget

        return HttpTarget(spec, timeout=timeout)
    if isinstance(spec, ModelSpec):
        from samebits.audit.targets.embedded import EmbeddedTarget

        return EmbeddedTarget(spec)
    from samebits.audit.targets.transformers import TransformersTarget

    return TransformersTarget(spec)
