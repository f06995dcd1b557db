# Only what the tests use.
