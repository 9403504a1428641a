"""`python -m service` is `dragoman`.

The import is inside the guard because engine processes, which are spawned, import this module again and need no command
line.
"""

if __name__ == "__main__":
    from service.cli.app import main

    main("python -m service")
