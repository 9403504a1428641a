"""The lifecycle of a call (`lifecycle.py`) and the authentication of its caller (`auth.py`), for every protocol.

`grpc` and `http` contain the protocols.
"""
