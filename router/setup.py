"""The compiled parts, which pyproject.toml cannot leave out.

AMQP_SESSION_ROUTER_BUILD in the build's environment is `compiled` (they are there, or the build fails) or `pure`
(none is). Without it each is there that the C compiler could make.

The hot modules are Python, and run as they are where they are not compiled; the C types of each are in the .pxd beside
it. `base.native` alone stands twice: what C and Python do differently, with nothing decided in it.
"""

import os

from setuptools import Extension, setup

PACKAGE = "amqp_session_router"
BUILD = os.environ.get("AMQP_SESSION_ROUTER_BUILD")
COMPILED = {
    "base.native": ".pyx",
    "amqp.boundary": ".py",
    "amqp.frames": ".py",
    "net.poller": ".py",
    "relay.fastpath": ".py",
    "relay.frame_scan": ".py",
    "relay.stream_profile": ".py",
}


def extensions() -> list[Extension]:
    """Return the extensions, translated to C."""
    if BUILD == "pure":
        return []
    from Cython.Build import cythonize

    found = [
        Extension(f"{PACKAGE}.{module}", [f"{PACKAGE}/{module.replace('.', '/')}{suffix}"])
        for module, suffix in COMPILED.items()
    ]
    made = cythonize(found)
    for extension in made:
        extension.optional = BUILD != "compiled"
    return made


setup(ext_modules=extensions())
