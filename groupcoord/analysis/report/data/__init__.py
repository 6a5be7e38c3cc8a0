"""From finished tables to the figures of a page: the same functions for logs on Spark, without it, and for polls."""
