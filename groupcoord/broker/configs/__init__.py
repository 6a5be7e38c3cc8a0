"""Configs of topics, groups, brokers and client metrics subscriptions, and the requests about them."""
