"""The compiled parts, which pyproject.toml cannot leave out.

AMQP_SESSION_ROUTER_BUILD in the build's environment is `compiled` (they are there, or the build fails) or `pure`
(none is). Without it each is there that the C compiler could make. The Python modules of the same names do the work of
those that are not.
"""

import os

from setuptools import Extension, setup

BUILD = os.environ.get("AMQP_SESSION_ROUTER_BUILD")
COMPILED = () if BUILD == "pure" else ("amqp.boundary", "amqp.frames", "net.poller", "net.sockets", "relay.fastpath")


def extension(name: str) -> Extension:
    """Return the extension of a module."""
    module = f"amqp_session_router.{name}"
    return Extension(module, [f"{module.replace('.', '/')}.pyx"], optional=BUILD != "compiled")


setup(ext_modules=[extension(name) for name in COMPILED])
