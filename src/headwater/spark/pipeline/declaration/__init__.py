"""A pipeline's file, ``orders.toml``, read and checked in full before Spark starts.

    [source.orders]
    url = "${ORDERS_URL}"
    stream = "orders"
    schema = "order_id bigint, item string, price decimal(10, 2)"

    [input.items]
    path = "items.csv"

    [table.sales]
    mode = "append"
    sql = "SELECT o.*, i.category FROM orders o LEFT JOIN items i USING (item)"
    path = "tables/sales"
    partition_by = ["category"]

    [[table.sales.expect]]
    name = "price_is_known"
    predicate = "price IS NOT NULL"
    action = "quarantine"

    [table.by_category]
    mode = "complete"
    sql = "SELECT category, sum(price) AS sum FROM sales GROUP BY category"
    path = "tables/by_category"

Rule 1. All mistakes are reported at once, each with its key and what would be right.
Rule 2. ``${NAME}`` is taken from the environment, everywhere but in SQL: a url's password belongs
        in no file. What came from there is shown nowhere.
Rule 3. Paths are relative to the file, so a pipeline runs alike from any directory.

    model                              what a declaration says: Pipeline, Source, Table, Archive …
    loading                            a file, section by section
    sources, tables, archive           one section each
    graph, sql                         what reads what, and in which order tables are made
    problems                           mistakes, collected; values of keys
"""
