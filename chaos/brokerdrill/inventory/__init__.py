"""What is deployed: topologies, descriptors, targets, playbooks."""
