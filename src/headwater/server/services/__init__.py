"""What the sessions of a node share. Nothing here knows the node or its commands."""
