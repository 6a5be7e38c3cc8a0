"""What happened to groups, told from their states at several moments: where nobody may read ``__consumer_offsets``.

``views`` makes of a snapshot the same views of groups as of records, ``groups`` finds in the difference of two what
changed, ``rows`` are the rows of the pipeline's tables, and ``figures`` the page's. No Spark in here.
"""
