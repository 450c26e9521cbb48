"""The load of a scenario: who sends what, and how."""

from __future__ import annotations

from pydantic import Field, field_validator, model_validator

from brokerdrill.base.documents import Strict
from brokerdrill.scenario.expectations import usage
from brokerdrill.workload.client import CLIENTS, client_type


class Load(Strict):
    """Who sends what, and how: all clients together keep `rate` messages a second (open loop), or without it as fast
    as the replies come (closed loop)."""

    producers: int = Field(4, ge=1, le=1000)
    consumers: int = Field(4, ge=0, le=1000)
    workers: int = Field(
        2, ge=1, le=64, description="worker processes that share the clients, on the load hosts in turn"
    )
    addresses: list[str] = Field(min_length=1)
    rate: float | None = Field(None, gt=0)
    transaction: int = Field(10, ge=0, description="messages a transaction; 0: none, each send stands alone")
    payload_bytes: list[int] = Field([256], min_length=1)
    keys: int = Field(0, ge=0, description="message groups a producer uses in turn; 0: none")
    window: int = Field(
        1,
        ge=1,
        le=10_000,
        description="how many messages a producer has in flight, outside transactions: it sends on while they are not "
        "answered, and whenever its connection is lost all of them are in doubt (amqp, amqp091, core)",
    )
    durable: bool = True
    duplicate_detection: bool = True
    resend: bool = Field(True, description="whether a producer sends what is in doubt again")
    confirms: bool = Field(
        True,
        description="whether a producer waits for the broker's word that it has a message, where the protocol leaves "
        "that to the client (amqp091); without it what is written counts as sent",
    )
    backlog: bool = Field(
        False,
        description="whether consumers wait for a step `consume`, or until the producers are stopped: so long "
        "all messages wait",
    )
    subscriptions: bool = Field(
        False,
        description="whether the addresses are topics, on which each consumer has durable subscriptions of its own: "
        "producers begin when all are there, and when the topics are drained they are ended",
    )
    client: str | None = Field(None, description="the clients' protocol; without it the product's own")
    call_timeout_ms: int = Field(10_000, ge=100)
    url_params: dict[str, str | int | float | bool] = Field(
        {},
        description="parameters of the clients' connections, by the names that their library gives them; they win over "
        "what the clients set themselves",
    )
    dials: int = Field(
        0,
        ge=0,
        description="how many of the brokers' addresses clients are given, primaries first; 0: all. Of others they "
        "know what their library learns from who serves them (core)",
    )
    through: str | None = Field(
        None,
        description="the name of a listener. Of connection routers: producers ask it whom to connect to, anew for each "
        "batch, as the next of their routing keys; consumers dial the brokers themselves. Of others: all clients dial "
        "it",
    )
    routers: int = Field(0, ge=0, description="with `through`: how many of the routers are asked, in turn; 0: all")
    routing_keys: int = Field(
        100,
        ge=0,
        description="with `through`: how many keys all producers have, where clients choose their key; 0: no client "
        "has one",
    )
    keeps_connection: bool = Field(
        False,
        description="with `through`: whether a producer keeps its connection until that breaks, and its one key",
    )

    @model_validator(mode="after")
    def _a_connection_has_one_key(self) -> Load:
        if self.keeps_connection and self.routing_keys > self.producers:
            raise ValueError(
                f"keeps_connection: {self.producers} producers keep as many keys, not {self.routing_keys} "
                "(routing_keys)"
            )
        return self

    @model_validator(mode="after")
    def _a_window_is_of_single_sends(self) -> Load:
        if self.window > 1 and self.transaction > 0:
            raise ValueError("window: in a transaction the commit answers for all: set transaction to 0")
        if self.window > 1 and not self.confirms:
            raise ValueError("window: without confirms nothing that is sent is answered")
        return self

    @model_validator(mode="after")
    def _consumers_subscribe_first(self) -> Load:
        if self.subscriptions and self.consumers == 0:
            raise ValueError("subscriptions: there is no consumer to have one")
        if self.subscriptions and (self.backlog or self.through):
            other = "backlog" if self.backlog else "through"
            raise ValueError(f"subscriptions: the consumers subscribe first, which {other} leaves no room for")
        return self

    @field_validator("client")
    @classmethod
    def _known_client(cls, value: str | None) -> str | None:
        if value is not None and value not in CLIENTS:
            usage(lambda: client_type(value))
        return value
