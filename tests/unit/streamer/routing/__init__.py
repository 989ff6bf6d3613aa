"""Tests of ``streamer.routing``."""
