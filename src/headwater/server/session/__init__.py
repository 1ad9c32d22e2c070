"""The state of one client. This package depends neither on the node nor on its services and commands."""
