"""A pipeline's file, ``orders.toml``, which is read and fully checked before Spark starts.

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

Rule 1. All mistakes are reported together, each with its key and a valid alternative.
Rule 2. ``${NAME}`` in urls, streams, paths and options is replaced from the environment, so a file need not
        contain a url's password. Such values are never shown, except in paths and in ``master`` and ``app``.
Rule 3. Paths are relative to the file's directory, so a pipeline runs the same from any working directory.

    model                              the contents of a declaration: Pipeline, Source, Table, Archive …
    loading                            reads a file, section by section
    sources, tables, archive           read one section each
    graph, sql                         the tables that a table reads, and the order in which tables are made
    problems                           collects mistakes; parses values of keys
"""
