"""What plugin authors test with."""

from system1_core.testing.checks import check_family
from system1_core.testing.server import Reply, TestServer, serve

__all__ = ["Reply", "TestServer", "check_family", "serve"]
