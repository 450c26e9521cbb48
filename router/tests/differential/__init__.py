"""The same client at a RabbitMQ and at the router before it: what it sees must be the same but for what is named."""
