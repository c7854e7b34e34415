#!/bin/sh
# Fails unless its argument is a file as seen from its folder.
test -f "$1"
