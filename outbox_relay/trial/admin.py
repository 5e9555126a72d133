"""The admin paths of the simulated provider, under /_trial: faults, held requests, time, lookup lag.

For supervisors only; a relay never calls them, and no contract has a path that begins like this.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Literal, TypeVar

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from outbox_relay.trial.faults import FaultRule
from outbox_relay.trial.front import Gate
from outbox_relay.trial.workshop import Workshop

Order = TypeVar("Order", bound=BaseModel)
Report = dict[str, object]


class _Release(BaseModel):
    """Let held requests go."""

    model_config = ConfigDict(extra="forbid")
    how: Literal["drop", "answer"]
    key: str | None = None


class _Conditions(BaseModel):
    """Change the circumstances."""

    model_config = ConfigDict(extra="forbid")
    advance_s: float = 0
    """Move the provider's clock forward."""
    lookup_lag_s: Annotated[float, Field(ge=0)] | None = None
    page_size: Annotated[int, Field(ge=1)] | None = None
    scattered: bool | None = None
    """Lookups list things in no order of their ids or times."""
    work_s: Annotated[float, Field(ge=0)] | None = None


class _Gone(BaseModel):
    """The object of a natural key is gone."""

    model_config = ConfigDict(extra="forbid")
    operation: str
    account: str
    key: str


class Admin:
    """Carries out the orders."""

    def __init__(self, workshop: Workshop, gate: Gate) -> None:
        self._workshop = workshop
        self._gate = gate

    def add_paths(self, application: web.Application) -> None:
        """Put the admin paths in front of everything else."""
        router = application.router
        router.add_post("/_trial/faults", _ordered(FaultRule, self._add_fault))
        router.add_delete("/_trial/faults", self._heal)
        router.add_post("/_trial/release", _ordered(_Release, self._release))
        router.add_post("/_trial/conditions", _ordered(_Conditions, self._change))
        router.add_post("/_trial/forget", _ordered(_Gone, self._forget))
        router.add_get("/_trial/state", self._show)

    async def _add_fault(self, rule: FaultRule) -> Report:
        self._workshop.faults.add(rule)
        return {"fault": rule.fault}

    async def _release(self, order: _Release) -> Report:
        return {"released": self._gate.release(order.how, order.key)}

    async def _change(self, order: _Conditions) -> Report:
        workshop = self._workshop
        workshop.clock.advance(order.advance_s)
        if order.lookup_lag_s is not None:
            workshop.shelf.lag_s = order.lookup_lag_s
        if order.page_size is not None:
            workshop.listing.page_size = order.page_size
        if order.scattered is not None:
            workshop.listing.scattered = order.scattered
        if order.work_s is not None:
            workshop.work_s = order.work_s
        return {"now": workshop.clock.now()}

    async def _forget(self, order: _Gone) -> Report:
        self._workshop.forget(order.operation, order.account, order.key)
        return {}

    async def _heal(self, _request: web.Request) -> web.Response:
        self._workshop.faults.clear()
        return web.json_response({})

    async def _show(self, _request: web.Request) -> web.Response:
        workshop = self._workshop
        state = {"held": len(self._gate), "things": len(workshop.shelf), "now": workshop.clock.now()}
        return web.json_response(state)


def _ordered(
    model: type[Order], carry_out: Callable[[Order], Awaitable[Report]]
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        try:
            order = model.model_validate_json(await request.read())
        except ValidationError as error:
            return web.Response(status=422, body=error.json(include_url=False), content_type="application/json")
        return web.json_response(await carry_out(order))

    return handle
