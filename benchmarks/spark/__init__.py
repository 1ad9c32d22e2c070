"""The Spark source, measured beside its peers in the same run."""
