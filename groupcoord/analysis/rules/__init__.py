"""Rules for anomalies, lag, assignment balance and expiring offsets: pure functions from folded groups to table rows.

Every engine calls them, with all groups or a bucket of them. To add an anomaly, write a function in ``anomalies``, call
it in ``anomalies.anomalies``, and add its kind to :mod:`groupcoord.analysis.rules.statuses`.
"""
