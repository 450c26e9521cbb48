"""Sockets: transports, dialling, TLS, the PROXY protocol, socket options and deadlines."""
