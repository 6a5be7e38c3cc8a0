"""What logs of ``__consumer_offsets`` tell: columns, history, tables, pages, of files and of clusters that run."""
