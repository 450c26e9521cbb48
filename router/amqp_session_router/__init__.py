"""An AMQP 0-9-1 session router: Python does the handshake and the control plane, the kernel moves the bytes."""
