"""Endpoints: the policies of one server, by name."""

from collections.abc import Iterator, Sequence
from http import HTTPStatus

from penstock.serving.server.admission.refusal import Refusal
from penstock.serving.server.endpoints.endpoint import Endpoint

__all__ = ["Endpoints"]


class Endpoints:
    """The endpoints of one server.

    Args:
        endpoints: at least one, with different names. The first answers requests that name none.
    """

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._by_name = {endpoint.name: endpoint for endpoint in endpoints}
        self._first = endpoints[0]

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(self._by_name.values())

    def find(self, name: str) -> Endpoint:
        """The endpoint of a name; of an empty one the first.

        Raises:
            Refusal: there is none (404).
        """
        if not name:
            return self._first
        endpoint = self._by_name.get(name)
        if endpoint is None:
            raise Refusal(HTTPStatus.NOT_FOUND, f"there is no policy {name[:80]!r}; this server has {self}")
        return endpoint

    @property
    def is_ready(self) -> bool:
        """Whether each is able to answer."""
        return all(endpoint.is_ready for endpoint in self)

    @property
    def is_idle(self) -> bool:
        """Nothing waits anywhere, and nothing is being answered."""
        return all(endpoint.is_idle for endpoint in self)

    def __str__(self) -> str:
        """Their names for a sentence."""
        return ", ".join(map(repr, self._by_name))
