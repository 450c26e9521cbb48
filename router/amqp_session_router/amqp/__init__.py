"""AMQP 0-9-1: frames, method codec, SASL, and both halves of the handshake; no I/O."""
