"""The use case, for every protocol: texts in, translations out.

The work on a text is a coroutine that awaits the engine; nothing here knows where the scheduler runs.
"""
