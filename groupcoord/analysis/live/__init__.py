"""Running clusters: end offsets, record batches and snapshots of groups, read over the network.

``settings`` has the address of a cluster under Kafka's names. ``cluster`` sends the requests, and retries them while
leaders move and brokers restart. ``offsets`` cuts topics into ranges, and fetches these and single records for their
timestamps. ``snapshots`` requests groups where their log may not be read.
"""
