"""The gRPC ports: a servicer for each protocol converts messages to records and back.

The same files hold what every gRPC call needs: handlers, statuses, TLS, health and reflection.
"""
