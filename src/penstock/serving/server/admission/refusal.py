"""Refusal: why a request is not answered, in the words and numbers of HTTP. Every protocol translates it."""

from http import HTTPStatus

__all__ = ["FAILED", "Refusal"]


class Refusal(Exception):  # noqa: N818 - it is no error of this program
    """A request that is not answered.

    Attributes:
        status: what kind of refusal it is.
        text: one line for the client.
        retry_after: seconds after which another try may succeed; ``None``: another try is of no use.
    """

    def __init__(self, status: HTTPStatus, text: str, retry_after: int | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.retry_after = retry_after


FAILED = Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "the server failed to answer this request; its log says why")
"""For an error that nobody has foreseen. Whoever answers with it has logged the error."""
