"""Share: which of many requests go to a canary."""

__all__ = ["Share"]


class Share:
    """Takes a share of all that come, evenly: of n in a row it takes ``share * n``, rounded down.

    Args:
        share: from 0 to 1.
    """

    def __init__(self, share: float) -> None:
        self.share = share
        self._seen = 0

    def takes(self) -> bool:
        """Whether the next one belongs to the share."""
        before = int(self._seen * self.share)
        self._seen += 1
        return int(self._seen * self.share) > before
