"""Descriptors of brokers that this project did not deploy, from what their hosts tell: unit, command line, files."""
