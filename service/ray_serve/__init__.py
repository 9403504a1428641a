"""The service behind Ray Serve: each replica has a server of its own, which Serve's proxies reach."""
