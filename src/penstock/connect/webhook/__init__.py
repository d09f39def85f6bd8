"""Publish over HTTP: signed CloudEvents."""
