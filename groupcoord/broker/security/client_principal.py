"""A principal that knows where its client is: ACLs may be for one host alone."""

from __future__ import annotations


class ClientPrincipal(str):
    """A principal, equal to its text.

    Attributes:
        host: the client's address, without the slash of Kafka's form.
    """

    __slots__ = ("host",)

    host: str

    def __new__(cls, principal: str, client_host: str) -> ClientPrincipal:
        """Make a principal of a client at ``client_host``, in Kafka's form."""
        made = super().__new__(cls, principal)
        made.host = client_host.removeprefix("/")
        return made
