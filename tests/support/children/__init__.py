"""Modules that tests run in processes of their own: handlers, apps and drivers."""
