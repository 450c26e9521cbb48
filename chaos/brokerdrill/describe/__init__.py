"""Descriptors of brokers that this project did not deploy, from what is on their hosts: unit, command line, files."""
