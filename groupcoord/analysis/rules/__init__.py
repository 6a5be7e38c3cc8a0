"""What is to be said of groups: pure functions from what is known of some groups to rows of tables.

Every engine calls them, with all groups or with a bucket of them; each group's records lie in one log partition, and so
all that is known of a group is there at a time. What is known: the rows of its history
(:mod:`groupcoord.analysis.fold.history`), the facts of its commits
(:class:`groupcoord.analysis.fold.commits.CommitFacts`), and where topics end
(:class:`groupcoord.analysis.rules.lag.Ends`).

A new anomaly is a function in ``anomalies``, called in ``anomalies.anomalies``, with its kind in
:mod:`groupcoord.analysis.rules.thresholds`.
"""
