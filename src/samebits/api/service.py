"""The models that a server holds, and what the routes share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.requests import Request

from samebits.api.config import ServerConfig
from samebits.api.errors import UnknownModelError
from samebits.api.inner import InnerBackend
from samebits.api.metrics import Metrics
from samebits.api.served import Served
from samebits.gateway.gateway import Gateway


@dataclass
class Service:
    """What all routes reach through ``request.app.state.service``.

    Attributes:
        models: those that this process computes.
        gateway: what stands before all models; None until the application is put together.
        inner: the routes, as the gateway asks them.
        started: when, in seconds since 1970.
        draining: set when the server is about to end: nothing new is taken.
        open_requests: HTTP requests under way.
    """

    config: ServerConfig
    models: Mapping[str, Served]
    metrics: Metrics
    gateway: Gateway | None = None
    inner: InnerBackend = field(default_factory=InnerBackend)
    started: int = 0
    draining: bool = False
    open_requests: int = 0

    def model(self, name: str) -> Served:
        """The model of that name.

        Raises:
            UnknownModelError: there is none.
        """
        try:
            return self.models[name]
        except KeyError:
            raise UnknownModelError(
                f"{name!r:.100} is not served", field="model", remedy=f"Use one of: {', '.join(self.config.models)}."
            ) from None

    def only_model(self) -> Served:
        """The model, where only one is served.

        Raises:
            UnknownModelError: there are several, or none.
        """
        if len(self.models) != 1:
            raise UnknownModelError("is missing", field="model", remedy=f"Use one of: {', '.join(self.config.models)}.")
        return next(iter(self.models.values()))


def service_of(request: Request) -> Service:
    """The service of the app that a request came to."""
    service: Service = request.app.state.service
    return service
