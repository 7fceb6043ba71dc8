#!/bin/sh
# Runs its arguments: the program of a test that is a command line.
exec "$@"
