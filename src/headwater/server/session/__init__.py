"""The state of one client. This package knows neither the node nor its services and commands."""
