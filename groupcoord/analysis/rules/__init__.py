"""Rules for anomalies, lag, assignment balance and expiring offsets: pure functions from folded groups to table rows.

Every engine calls them, with all groups or with a bucket of them: the records of a group lie in one log partition. The
arguments are the rows of a group's history (:mod:`groupcoord.analysis.fold.history`), the facts of its commits
(:class:`groupcoord.analysis.fold.commits.CommitFacts`) and the ends of topics
(:class:`groupcoord.analysis.rules.lag.Ends`).

A new anomaly is a function in ``anomalies``, called in ``anomalies.anomalies``, with its kind in
:mod:`groupcoord.analysis.rules.statuses`.
"""
