"""Listeners, TLS, SASL, credentials and ACLs. Packages of the extra ``login`` are imported on first use."""
