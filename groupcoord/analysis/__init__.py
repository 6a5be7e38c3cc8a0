"""Analysis of ``__consumer_offsets``: tables, histories of groups and reports, from files or running clusters."""
