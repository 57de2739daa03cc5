"""Administration over HTTP: which versions are loaded, and what becomes of a canary. Has tokens of its own.

GET  /admin/policies                   what is loaded
POST /admin/policies/NAME/promote      the canary becomes the stable version
POST /admin/policies/NAME/rollback     the stable version answers for the canary
"""

from http import HTTPStatus
from typing import Any

from penstock.serving.server.admission.refusal import Refusal
from penstock.serving.server.admission.tokens import Tokens
from penstock.serving.server.connections.http import HttpReply, HttpRequest
from penstock.serving.server.endpoints.by_name import Endpoints
from penstock.serving.server.endpoints.endpoint import Endpoint

__all__ = ["PATH", "Administration"]

PATH = "/admin"
PROTOCOL = "administration"


class Administration:
    """Answers requests below `PATH`.

    Args:
        endpoints: of the server.
        tokens: of those who may administer it; ``None``: nobody may.
    """

    def __init__(self, endpoints: Endpoints, tokens: Tokens | None) -> None:
        self._endpoints = endpoints
        self._tokens = tokens

    def route(self, request: HttpRequest, reply: HttpReply) -> None:
        """Take one request.

        Raises:
            Refusal: it is not answered.
        """
        reply.protocol, reply.error_keys = PROTOCOL, ("error",)
        if self._tokens is None:
            raise Refusal(HTTPStatus.FORBIDDEN, "nobody administers this server; start it with --admin_token_file FILE")
        if not self._tokens.accept_headers(request.headers):
            raise Refusal(HTTPStatus.UNAUTHORIZED, "the token is missing or wrong")
        match request.path.removeprefix(PATH).strip("/").split("/"):
            case ["policies"]:
                _check_method(request, "GET")
                reply.send_json({"policies": [_shown(endpoint) for endpoint in self._endpoints]})
            case ["policies", name, "promote" | "rollback" as verb] if name:
                _check_method(request, "POST")
                endpoint = self._endpoints.find(name)
                if verb == "promote":
                    endpoint.promote()
                else:
                    endpoint.roll_back("an administrator wanted it")
                reply.send_json(_shown(endpoint))
            case _:
                raise Refusal(HTTPStatus.NOT_FOUND, f"there is nothing at {request.path[:120]}")


def _check_method(request: HttpRequest, wanted: str) -> None:
    if request.method != wanted:
        raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"{request.path[:120]} takes {wanted}, not {request.method}")


def _shown(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "name": endpoint.name,
        "versions": [
            {
                "version": number,
                "share": endpoint.share_of(version),
                "sessions": version.sessions,
                "failures": version.failures,
            }
            for number, version in endpoint.versions.items()
        ],
    }
