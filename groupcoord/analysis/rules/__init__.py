"""Rules for anomalies, lag, assignment balance and expiring offsets: pure functions from folded groups to table rows.

Every engine calls them, with all groups or a bucket of them. The arguments are rows of the groups' histories
(:mod:`groupcoord.analysis.fold.history`), facts of their commits
(:class:`groupcoord.analysis.fold.commits.CommitFacts`) and end offsets (:class:`groupcoord.analysis.rules.lag.Ends`).

To add an anomaly, write a function in ``anomalies``, call it in ``anomalies.anomalies``, and add its kind to
:mod:`groupcoord.analysis.rules.statuses`.
"""
