"""What topics hold, as clients write and read it: Produce, Fetch, ListOffsets, DeleteRecords."""
