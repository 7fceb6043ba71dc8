#!/bin/sh
# What a test runs that is a program with arguments.
exec "$@"
