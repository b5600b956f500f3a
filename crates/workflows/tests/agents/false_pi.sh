#!/bin/sh
# Calls itself pi and does what the test says. A file of its own, since one that a test writes may still be busy when it is run.
eval "$FALSE_PI"
