"""The node and its sessions; the loop, listeners and configuration that make it a server."""
