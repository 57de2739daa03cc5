from tests.memory.conftest import program, segment

__all__ = ["program", "segment"]
