"""Tables and reports from repeated snapshots of groups, where ``__consumer_offsets`` may not be read.

``rows`` converts snapshots to the tables' rows, and finds changes between two snapshots. ``lag`` computes lag and
statuses; ``polling`` runs polls and writes tables, page and figures.
"""
