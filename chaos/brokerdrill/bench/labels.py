"""The labels by which the engine knows what is the bench's."""

LABEL = "brokerdrill.topology"
LABEL_HOST = "brokerdrill.host"
LABEL_SPEC = "brokerdrill.spec"
LABEL_CHECKOUT = "brokerdrill.checkout"
