"""What is said of a port that cannot be listened on."""

import errno

from penstock.serving.server.connections.listening import cannot_listen


def test_an_address_of_ipv6_is_in_brackets() -> None:
    error = cannot_listen("::1", 8000, "give another --port", OSError(errno.EADDRINUSE, "in use"))
    assert str(error) == "cannot listen on [::1]:8000: Address already in use; give another --port"
