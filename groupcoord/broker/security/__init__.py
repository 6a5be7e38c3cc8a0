"""Who a client is and what it may do: listeners, TLS, SASL, credentials, ACLs. What a package of the extra ``login``
does is imported where it is used, so that a server without log-in never loads it.
"""
