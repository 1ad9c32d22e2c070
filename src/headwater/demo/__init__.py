"""The main job on real input: every flight that left New York in 2013, from bytes to tables.

``headwater demo`` publishes 336,776 flights, one in a thousand spoiled on purpose, has three worker
processes enrich them while one is killed and one is stopped, lets Spark make tables, and then counts
everything again. `run` tells the story; each other file is one part of it.
"""
