"""One client's state. Nothing here knows the node, its services or its commands."""
