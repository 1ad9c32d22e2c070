"""The demo: server, workers and Spark on every flight that left New York in 2013.

``headwater demo`` publishes 336,776 flights, one in a thousand corrupted on purpose. Three worker
processes enrich them while one is stopped and one is killed, Spark makes tables, and all flights are
counted again. `run` has the steps; the other modules implement their parts.
"""
