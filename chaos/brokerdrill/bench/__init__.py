"""Test hosts on this machine: the engine, the image, the hosts' life."""
