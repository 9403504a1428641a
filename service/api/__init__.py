"""The lifecycle of a call and the authentication of its caller, the same for every protocol.

`grpc` and `http` contain the protocols.
"""
