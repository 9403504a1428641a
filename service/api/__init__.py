"""What every call goes through, whatever its protocol: who makes it, and how it is accounted for."""
