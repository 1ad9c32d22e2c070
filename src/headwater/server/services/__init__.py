"""Services that the sessions of a node share. This package knows neither the node nor its commands."""
