"""HTTP beside gRPC: pages for machines now, dialects of other translation services later."""
