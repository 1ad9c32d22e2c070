"""Services that the sessions of a node share. This package depends neither on the node nor on its commands."""
